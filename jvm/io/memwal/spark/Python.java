package io.memwal.spark;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import net.razorvine.pickle.Pickler;
import org.apache.spark.api.python.PythonFunction;
import org.apache.spark.api.python.PythonUtils$;
import org.apache.spark.api.python.SpecialLengths$;
import org.apache.spark.sql.AnalysisException;
import org.apache.spark.sql.execution.datasources.v2.python.UserDefinedPythonDataSource;
import org.apache.spark.sql.execution.python.PythonPlannerRunner;

/**
 * Calls of the package's Python code, in a worker on the driver that Spark keeps from call to call.
 *
 * <p>A request is the name of an operation with arguments as JSON and with parts in bytes, and so is
 * its answer without the name. The operations are in memwal_sql/spark/driver.
 */
final class Python {
  private static final String WORKER = "pyspark_memwal.calls";
  private static final ObjectMapper JSON = new ObjectMapper();
  private static PythonFunction interpreter;

  private Python() {}

  /** What an operation returns. */
  record Answer(JsonNode json, List<byte[]> parts) {}

  static ObjectNode arguments() {
    return JSON.createObjectNode();
  }

  static ObjectNode object(Map<String, String> entries) {
    return JSON.valueToTree(entries);
  }

  /**
   * Runs an operation. Errors of the package become an AnalysisException with their message, others
   * a RuntimeException with the traceback.
   */
  static Answer call(String operation, ObjectNode arguments, List<byte[]> parts) {
    SparkVersion.check();
    Call call = new Call(operation, arguments, parts);
    return call.runInPython(call.runInPython$default$1());
  }

  static Answer call(String operation, ObjectNode arguments) {
    return call(operation, arguments, List.of());
  }

  /** What Spark's classes for tasks in Python want to know of a source: its interpreter. */
  static UserDefinedPythonDataSource source() {
    return new UserDefinedPythonDataSource(interpreter());
  }

  /** The interpreter for workers. To find it runs a process, once. */
  private static synchronized PythonFunction interpreter() {
    if (interpreter == null) {
      interpreter = PythonUtils$.MODULE$.createPythonFunction(new byte[0]);
    }
    return interpreter;
  }

  private static final class Call extends PythonPlannerRunner<Answer> {
    private final String operation;
    private final ObjectNode arguments;
    private final List<byte[]> parts;

    Call(String operation, ObjectNode arguments, List<byte[]> parts) {
      super(interpreter());
      this.operation = operation;
      this.arguments = arguments;
      this.parts = parts;
    }

    @Override
    public String workerModule() {
      return WORKER;
    }

    @Override
    public void writeToPython(DataOutputStream out, Pickler pickler) {
      try {
        write(out, operation.getBytes(StandardCharsets.UTF_8));
        write(out, JSON.writeValueAsBytes(arguments));
        out.writeInt(parts.size());
        for (byte[] part : parts) {
          write(out, part);
        }
      } catch (IOException error) {
        throw Python.<RuntimeException>thrown(error);
      }
    }

    @Override
    public Answer receiveFromPython(DataInputStream in) {
      try {
        int length = in.readInt();
        if (length == SpecialLengths$.MODULE$.PYTHON_EXCEPTION_THROWN()) {
          throw new RuntimeException(text(read(in, in.readInt())));
        }
        JsonNode json = JSON.readTree(read(in, length));
        if (json.has("error")) {
          refuse(json);
        }
        List<byte[]> received = new ArrayList<>();
        for (int left = in.readInt(); left > 0; left--) {
          received.add(read(in, in.readInt()));
        }
        return new Answer(json, received);
      } catch (IOException error) {
        throw Python.<RuntimeException>thrown(error);
      }
    }

    private void refuse(JsonNode json) {
      Map<String, String> words =
          Map.of("action", operation, "type", MemwalSource.NAME, "msg", json.get("error").asText());
      throw Python.<RuntimeException>thrown(
          new AnalysisException(
              "PYTHON_DATA_SOURCE_ERROR", PythonUtils$.MODULE$.toScalaMap(words)));
    }
  }

  private static void write(DataOutputStream out, byte[] bytes) throws IOException {
    out.writeInt(bytes.length);
    out.write(bytes);
  }

  private static byte[] read(DataInputStream in, int length) throws IOException {
    byte[] bytes = new byte[length];
    in.readFully(bytes);
    return bytes;
  }

  private static String text(byte[] bytes) {
    return new String(bytes, StandardCharsets.UTF_8);
  }

  /** Spark's interfaces declare no exceptions, and its own are checked ones. */
  @SuppressWarnings("unchecked")
  static <E extends Throwable> E thrown(Throwable error) throws E {
    throw (E) error;
  }
}
