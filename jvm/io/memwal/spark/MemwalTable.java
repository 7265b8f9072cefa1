package io.memwal.spark;

import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.HashMap;
import java.util.List;
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
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * A table, or some of its columns, in one state: the first use takes it, and all others read the
 * same. {@code options} are those of docs/spark.md, with the path.
 */
class MemwalTable implements Table, SupportsRead, SupportsWrite {
  private static final List<String> NOT_OF_ROWS = List.of("query", "changes", "metadata");

  private final String name;
  private final StructType schema;
  private final Map<String, String> options;
  private final Map<CaseInsensitiveStringMap, byte[]> states = new HashMap<>();

  MemwalTable(String name, StructType schema, Map<String, String> options) {
    this.name = name;
    this.schema = schema;
    this.options = options;
  }

  /** The columns that a read with these options has. */
  static StructType columns(CaseInsensitiveStringMap options) {
    ObjectNode arguments = Python.arguments();
    arguments.set("options", Python.object(options));
    Python.Answer answer = Python.call("load_columns", arguments);
    return (StructType) DataType.fromJson(answer.json().get("schema").asText());
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
    if (NOT_OF_ROWS.stream().anyMatch(all::containsKey)) {
      return ((SupportsRead) python(schema, all)).newScanBuilder(all);
    }
    return scanned(all);
  }

  @Override
  public WriteBuilder newWriteBuilder(LogicalWriteInfo info) {
    checkWrite(info.options());
    CaseInsensitiveStringMap all = with(info.options());
    LogicalWriteInfo complete = new WriteInfo(info.queryId(), info.schema(), all);
    return ((SupportsWrite) python(info.schema(), all)).newWriteBuilder(complete);
  }

  /** Throws UnsupportedOperationException for options that would be ignored. */
  void checkWrite(CaseInsensitiveStringMap options) {}

  /**
   * Plans a scan, in the state that the first scan with these options has taken. The answer's first
   * part is that state.
   */
  synchronized Python.Answer plan(CaseInsensitiveStringMap options, ObjectNode arguments) {
    arguments.set("options", Python.object(options));
    byte[] state = states.get(options);
    Python.Answer answer =
        Python.call("plan_scan", arguments, state == null ? List.of() : List.of(state));
    states.putIfAbsent(options, answer.parts().get(0));
    return answer;
  }

  /** A scan with these options alone. */
  MemwalScanBuilder scanned(CaseInsensitiveStringMap all) {
    return new MemwalScanBuilder(this, schema, all);
  }

  /** The state that scans with these options read; null before the first. */
  synchronized byte[] state(CaseInsensitiveStringMap options) {
    return states.get(options);
  }

  static Table python(StructType schema, CaseInsensitiveStringMap options) {
    return MemwalSource.python().getTable(schema, new Transform[0], options.asCaseSensitiveMap());
  }

  /** The table's options, and those of one use. */
  CaseInsensitiveStringMap with(CaseInsensitiveStringMap given) {
    Map<String, String> all = new HashMap<>(new CaseInsensitiveStringMap(options));
    all.putAll(given);
    return new CaseInsensitiveStringMap(all);
  }

  private record WriteInfo(String queryId, StructType schema, CaseInsensitiveStringMap options)
      implements LogicalWriteInfo {}
}
