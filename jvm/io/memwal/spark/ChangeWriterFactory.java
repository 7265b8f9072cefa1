package io.memwal.spark;

import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.write.DeltaWriter;
import org.apache.spark.sql.connector.write.DeltaWriterFactory;
import org.apache.spark.sql.execution.datasources.v2.python.PythonBatchWriterFactory;
import org.apache.spark.sql.types.StructType;

/** Makes the writers of tasks. {@code staged} are the kind, {@code columns} of rows, and the key. */
record ChangeWriterFactory(
    PythonBatchWriterFactory python, StructType staged, int columns, int keyColumns)
    implements DeltaWriterFactory {
  @Override
  public DeltaWriter<InternalRow> createWriter(int partition, long task) {
    return new ChangeWriter(this, python.createWriter(partition, task));
  }
}
