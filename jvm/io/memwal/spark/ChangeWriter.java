package io.memwal.spark;

import java.io.IOException;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.expressions.JoinedRow;
import org.apache.spark.sql.catalyst.expressions.UnsafeProjection;
import org.apache.spark.sql.catalyst.expressions.UnsafeProjection$;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.connector.write.DataWriter;
import org.apache.spark.sql.connector.write.DeltaWriter;
import org.apache.spark.sql.connector.write.WriterCommitMessage;
import org.apache.spark.sql.execution.ExternalAppendOnlyUnsafeRowArray;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Gathers a task's changes and lets Python stage them. Spark hands over one row at a time and its
 * writers in Python take all at once, so rows wait here; Spark spills them if its memory is short.
 */
final class ChangeWriter implements DeltaWriter<InternalRow> {
  private static final int ROWS_IN_MEMORY = 4096;
  private static final long BYTES_IN_MEMORY = 8L << 20;
  private static final byte INSERT = 1;
  private static final byte UPDATE = 2;
  private static final byte DELETE = 3;

  private final DataWriter<InternalRow> python;
  private final UnsafeProjection projection;
  private final InternalRow noRow;
  private final InternalRow noKey;
  private final GenericInternalRow kind = new GenericInternalRow(1);
  private final JoinedRow front = new JoinedRow();
  private final JoinedRow all = new JoinedRow();
  private final ExternalAppendOnlyUnsafeRowArray rows =
      new ExternalAppendOnlyUnsafeRowArray(
          ROWS_IN_MEMORY, BYTES_IN_MEMORY, Integer.MAX_VALUE, Long.MAX_VALUE);

  ChangeWriter(ChangeWriterFactory factory, DataWriter<InternalRow> python) {
    this.python = python;
    projection = UnsafeProjection$.MODULE$.create(factory.staged());
    noRow = new GenericInternalRow(factory.columns());
    noKey = new GenericInternalRow(factory.keyColumns());
  }

  @Override
  public void delete(InternalRow metadata, InternalRow key) {
    add(DELETE, noRow, key);
  }

  @Override
  public void update(InternalRow metadata, InternalRow key, InternalRow row) {
    add(UPDATE, row, key);
  }

  @Override
  public void insert(InternalRow row) {
    add(INSERT, row, noKey);
  }

  private void add(byte code, InternalRow row, InternalRow key) {
    kind.setByte(0, code);
    rows.add(projection.apply(all.apply(front.apply(kind, row), key)));
  }

  @Override
  public WriterCommitMessage commit() throws IOException {
    java.util.Iterator<UnsafeRow> staged = CollectionConverters.asJava(rows.generateIterator());
    python.writeAll(
        new java.util.Iterator<>() {
          @Override
          public boolean hasNext() {
            return staged.hasNext();
          }

          @Override
          public InternalRow next() {
            return staged.next();
          }
        });
    return python.commit();
  }

  @Override
  public void abort() throws IOException {
    python.abort();
  }

  @Override
  public void close() throws IOException {
    rows.clear();
    python.close();
  }
}
