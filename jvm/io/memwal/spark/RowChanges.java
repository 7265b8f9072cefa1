package io.memwal.spark;

import org.apache.spark.sql.connector.expressions.NamedReference;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.connector.write.DeltaWriteBuilder;
import org.apache.spark.sql.connector.write.LogicalWriteInfo;
import org.apache.spark.sql.connector.write.SupportsDelta;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * A DELETE, UPDATE or MERGE. Spark finds rows in a scan, computes new ones, and hands them over with
 * the keys that the scan read. What others have written since that scan is seen by its state.
 */
final class RowChanges implements SupportsDelta {
  private final CatalogTable table;
  private final Command command;
  private CaseInsensitiveStringMap read;

  RowChanges(CatalogTable table, Command command) {
    this.table = table;
    this.command = command;
  }

  @Override
  public Command command() {
    return command;
  }

  @Override
  public NamedReference[] rowId() {
    return table.key();
  }

  @Override
  public ScanBuilder newScanBuilder(CaseInsensitiveStringMap options) {
    read = table.with(options);
    return table.scanned(read);
  }

  @Override
  public DeltaWriteBuilder newWriteBuilder(LogicalWriteInfo info) {
    return new ChangeWrite(this, info);
  }

  CatalogTable table() {
    return table;
  }

  /** The state of the table that was read; empty if nothing was. */
  byte[] state() {
    byte[] state = read == null ? null : table.state(read);
    return state == null ? new byte[0] : state;
  }
}
