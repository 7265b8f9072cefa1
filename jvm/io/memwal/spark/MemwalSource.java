package io.memwal.spark;

import java.util.Map;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableProvider;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceV2;
import org.apache.spark.sql.sources.DataSourceRegister;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * Format "memwal" of a session with this jar. Spark looks for formats among Java's classes first, so
 * the Python source of the same name is found only without the jar.
 */
public final class MemwalSource implements TableProvider, DataSourceRegister {
  static final String NAME = "memwal";

  @Override
  public String shortName() {
    return NAME;
  }

  @Override
  public StructType inferSchema(CaseInsensitiveStringMap options) {
    return MemwalTable.columns(options);
  }

  @Override
  public Table getTable(StructType schema, Transform[] transforms, Map<String, String> options) {
    SparkVersion.check();
    return new MemwalTable(NAME, schema, options);
  }

  /** True, as a write may create the table, and a read may ask for a part of its columns. */
  @Override
  public boolean supportsExternalMetadata() {
    return true;
  }

  /** The Python source: it streams, writes, and runs option query. */
  static PythonDataSourceV2 python() {
    PythonDataSourceV2 python = new PythonDataSourceV2();
    python.setShortName(NAME);
    return python;
  }
}
