package io.memwal.spark;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.HashMap;
import java.util.Map;
import java.util.Set;
import org.apache.spark.sql.connector.catalog.CatalogV2Util;
import org.apache.spark.sql.connector.catalog.Column;
import org.apache.spark.sql.connector.catalog.SupportsRead;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableCapability;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/** A table that describes a table, such as its history. It is read whole, by one task. */
final class MetadataTable implements Table, SupportsRead {
  private final String name;
  private final StructType schema;
  private final Map<String, String> options;

  MetadataTable(String name, JsonNode about, Folder folder) {
    this.name = name;
    schema = CatalogTable.columns(about);
    options = new HashMap<>(folder.options(about));
    options.put("metadata", about.get("metadata").asText());
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
    return Set.of(TableCapability.BATCH_READ);
  }

  @Override
  public ScanBuilder newScanBuilder(CaseInsensitiveStringMap given) {
    Map<String, String> all = new HashMap<>(options);
    all.putAll(given);
    Table python = MemwalSource.python().getTable(schema, new Transform[0], all);
    return ((SupportsRead) python).newScanBuilder(new CaseInsensitiveStringMap(all));
  }
}
