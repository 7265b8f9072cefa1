package io.memwal.spark;

import java.util.HashMap;
import java.util.Map;
import java.util.Set;
import org.apache.spark.sql.connector.catalog.CatalogV2Util;
import org.apache.spark.sql.connector.catalog.Column;
import org.apache.spark.sql.connector.catalog.SupportsRead;
import org.apache.spark.sql.connector.catalog.SupportsWrite;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableCapability;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.connector.write.LogicalWriteInfo;
import org.apache.spark.sql.connector.write.WriteBuilder;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/** A table, or some of its columns. {@code options} are those of docs/spark.md, with the path. */
class MemwalTable implements Table, SupportsRead, SupportsWrite {
  private final String name;
  private final StructType schema;
  private final Map<String, String> options;

  MemwalTable(String name, StructType schema, Map<String, String> options) {
    this.name = name;
    this.schema = schema;
    this.options = options;
  }

  @Override
  public String name() {
    return name;
  }

  @Override
  public Column[] columns() {
    return CatalogV2Util.structTypeToV2Columns(schema, true);
  }

  @Override
  public Set<TableCapability> capabilities() {
    return Set.of(
        TableCapability.BATCH_READ,
        TableCapability.BATCH_WRITE,
        TableCapability.MICRO_BATCH_READ,
        TableCapability.STREAMING_WRITE,
        TableCapability.TRUNCATE);
  }

  @Override
  public ScanBuilder newScanBuilder(CaseInsensitiveStringMap given) {
    CaseInsensitiveStringMap all = with(given);
    return ((SupportsRead) python(schema, all)).newScanBuilder(all);
  }

  @Override
  public WriteBuilder newWriteBuilder(LogicalWriteInfo info) {
    CaseInsensitiveStringMap all = with(info.options());
    LogicalWriteInfo complete = new WriteInfo(info.queryId(), info.schema(), all);
    return ((SupportsWrite) python(info.schema(), all)).newWriteBuilder(complete);
  }

  private static Table python(StructType schema, CaseInsensitiveStringMap options) {
    return MemwalSource.python()
        .getTable(schema, new Transform[0], options.asCaseSensitiveMap());
  }

  /** The table's options, and those of one use. */
  private CaseInsensitiveStringMap with(CaseInsensitiveStringMap given) {
    Map<String, String> all = new HashMap<>(new CaseInsensitiveStringMap(options));
    all.putAll(given);
    return new CaseInsensitiveStringMap(all);
  }

  private record WriteInfo(String queryId, StructType schema, CaseInsensitiveStringMap options)
      implements LogicalWriteInfo {}
}
