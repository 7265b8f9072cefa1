package io.memwal.spark;

import com.fasterxml.jackson.databind.node.ObjectNode;
import org.apache.spark.sql.connector.write.DeltaBatchWrite;
import org.apache.spark.sql.connector.write.DeltaWrite;
import org.apache.spark.sql.connector.write.DeltaWriteBuilder;
import org.apache.spark.sql.connector.write.DeltaWriterFactory;
import org.apache.spark.sql.connector.write.LogicalWriteInfo;
import org.apache.spark.sql.connector.write.PhysicalWriteInfo;
import org.apache.spark.sql.connector.write.WriterCommitMessage;
import org.apache.spark.sql.execution.datasources.v2.python.PythonBatchWriterFactory;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import scala.Option;

/**
 * The changes of a statement: tasks stage them by Spark's own classes for writers in Python, and the
 * driver publishes them. A staged row has a kind, the new row, and the key of the row that was read.
 */
final class ChangeWrite implements DeltaWriteBuilder, DeltaWrite, DeltaBatchWrite {
  private final RowChanges changes;
  private final LogicalWriteInfo info;
  private ObjectNode planned;

  ChangeWrite(RowChanges changes, LogicalWriteInfo info) {
    this.changes = changes;
    this.info = info;
  }

  @Override
  public DeltaWrite build() {
    return this;
  }

  @Override
  public DeltaBatchWrite toBatch() {
    return this;
  }

  @Override
  public String description() {
    return changes.description();
  }

  @Override
  public DeltaWriterFactory createBatchWriterFactory(PhysicalWriteInfo physical) {
    StructType key = info.rowIdSchema().get();
    StructType staged = new StructType().add("memwal kind", DataTypes.ByteType);
    for (StructField column : info.schema().fields()) { // all are missing in deletes
      staged = staged.add(column.name(), column.dataType(), true);
    }
    for (StructField column : key.fields()) { // all are missing in inserts
      staged = staged.add("memwal key " + column.name(), column.dataType(), true);
    }
    ObjectNode request = changes.table().changing(changes.command());
    request.put("rows", info.schema().json()).put("key", key.json());
    Python.Answer answer = Python.call("plan_changes", request);
    planned = changes.table().changing(changes.command());
    planned.put("job", answer.json().get("job").asText());
    PythonBatchWriterFactory python =
        new PythonBatchWriterFactory(
            Python.source(), answer.parts().get(0), staged, Option.empty(), Option.empty());
    return new ChangeWriterFactory(python, staged, info.schema().length(), key.length());
  }

  @Override
  public void commit(WriterCommitMessage[] messages) {
    Publication.publish(planned, changes.state(), messages);
  }

  @Override
  public void abort(WriterCommitMessage[] messages) {
    if (planned != null) {
      Python.call("abort_changes", planned);
    }
  }
}
