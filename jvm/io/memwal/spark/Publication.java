package io.memwal.spark;

import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.connector.write.WriterCommitMessage;
import org.apache.spark.sql.execution.datasources.v2.python.PythonWriterCommitMessage;

/** Publishes what the tasks of a statement have staged, if others have not written its rows since. */
final class Publication {
  private Publication() {}

  /** {@code state} is what the statement has read; empty if it has read nothing. */
  static void publish(ObjectNode request, byte[] state, WriterCommitMessage[] messages) {
    List<byte[]> parts = new ArrayList<>();
    parts.add(state);
    for (WriterCommitMessage message : messages) {
      if (message instanceof PythonWriterCommitMessage staged) {
        parts.add(staged.pickledMessage());
      }
    }
    Python.call("commit_changes", request, parts);
  }
}
