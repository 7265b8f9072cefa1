package io.memwal.spark;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.spark.sql.catalyst.analysis.NoSuchNamespaceException;
import org.apache.spark.sql.catalyst.analysis.NoSuchTableException;
import org.apache.spark.sql.catalyst.analysis.TableAlreadyExistsException;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.connector.catalog.NamespaceChange;
import org.apache.spark.sql.connector.catalog.StagedTable;
import org.apache.spark.sql.connector.catalog.StagingTableCatalog;
import org.apache.spark.sql.connector.catalog.SupportsNamespaces;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableCatalogCapability;
import org.apache.spark.sql.connector.catalog.TableChange;
import org.apache.spark.sql.connector.catalog.TableInfo;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * The tables of a folder: {@code spark.sql.catalog.x} is this class, {@code spark.sql.catalog.x.root}
 * the folder, and {@code spark.sql.catalog.x.storage.*} its storage options.
 *
 * <p>Tables are in no namespace. The metadata tables of {@code t} are {@code t.history} and
 * {@code `t$history`}.
 */
public final class MemwalCatalog implements StagingTableCatalog, SupportsNamespaces {
  private static final String[] ROOT = {};

  private Folder folder;

  @Override
  public void initialize(String name, CaseInsensitiveStringMap options) {
    SparkVersion.check();
    folder = Folder.of(name, options);
  }

  @Override
  public String name() {
    return folder.catalog();
  }

  @Override
  public Set<TableCatalogCapability> capabilities() {
    return Set.of(
        TableCatalogCapability.SUPPORT_TABLE_CONSTRAINT,
        TableCatalogCapability.SUPPORT_COLUMN_DEFAULT_VALUE);
  }

  @Override
  public Identifier[] listTables(String[] namespace) throws NoSuchNamespaceException {
    checkRoot(namespace);
    List<Identifier> tables = new ArrayList<>();
    for (JsonNode name : folder.call("list_tables", folder.request()).get("names")) {
      tables.add(Identifier.of(ROOT, name.asText()));
    }
    return tables.toArray(Identifier[]::new);
  }

  @Override
  public Table loadTable(Identifier table) throws NoSuchTableException {
    return loaded(table, folder.request(path(table)));
  }

  @Override
  public Table loadTable(Identifier table, String version) throws NoSuchTableException {
    return loaded(table, folder.request(path(table)).put("version", version));
  }

  @Override
  public Table loadTable(Identifier table, long micros) throws NoSuchTableException {
    return loaded(table, folder.request(path(table)).put("micros", micros));
  }

  private Table loaded(Identifier table, ObjectNode request) throws NoSuchTableException {
    JsonNode answer = found(table, folder.call("load_table", request));
    String name = folder.catalog() + "." + String.join(".", path(table).split("\\$"));
    return answer.has("metadata")
        ? new MetadataTable(name, answer, folder)
        : new CatalogTable(name, answer, folder);
  }

  @Override
  public Table createTable(Identifier table, TableInfo info)
      throws TableAlreadyExistsException, NoSuchNamespaceException {
    return staged(table, info, "create").make(true);
  }

  @Override
  public StagedTable stageCreate(Identifier table, TableInfo info)
      throws NoSuchNamespaceException {
    return staged(table, info, "create");
  }

  @Override
  public StagedTable stageReplace(Identifier table, TableInfo info)
      throws NoSuchNamespaceException {
    return staged(table, info, "replace");
  }

  @Override
  public StagedTable stageCreateOrReplace(Identifier table, TableInfo info)
      throws NoSuchNamespaceException {
    return staged(table, info, "createOrReplace");
  }

  private NewTable staged(Identifier table, TableInfo info, String mode)
      throws NoSuchNamespaceException {
    checkRoot(table.namespace());
    ObjectNode request = folder.request(table.name()).put("mode", mode);
    return new NewTable(folder, table, info.columns(), Requests.define(request, info));
  }

  @Override
  public Table alterTable(Identifier table, TableChange... changes) throws NoSuchTableException {
    ObjectNode request = folder.request(path(table));
    request.set("changes", Requests.changes(changes));
    return new CatalogTable(
        folder.catalog() + "." + table.name(), found(table, folder.call("alter_table", request)), folder);
  }

  /** Deletes the table's files: they have no other copy. */
  @Override
  public boolean dropTable(Identifier table) {
    return folder.call("drop_table", folder.request(path(table))).get("found").asBoolean();
  }

  @Override
  public boolean purgeTable(Identifier table) {
    return dropTable(table);
  }

  @Override
  public void renameTable(Identifier from, Identifier to) {
    throw new UnsupportedOperationException(
        "the name of a table is that of its folder, which can't be renamed in one step: CREATE TABLE "
            + folder.catalog() + "." + to.name()
            + " ... AS SELECT * FROM "
            + folder.catalog() + "." + from.name()
            + ", and DROP TABLE the old one");
  }

  @Override
  public String[][] listNamespaces() {
    return new String[0][];
  }

  @Override
  public String[][] listNamespaces(String[] namespace) throws NoSuchNamespaceException {
    checkRoot(namespace);
    return listNamespaces();
  }

  @Override
  public boolean namespaceExists(String[] namespace) {
    return namespace.length == 0;
  }

  @Override
  public Map<String, String> loadNamespaceMetadata(String[] namespace)
      throws NoSuchNamespaceException {
    checkRoot(namespace);
    return Map.of(SupportsNamespaces.PROP_LOCATION, folder.root());
  }

  @Override
  public void createNamespace(String[] namespace, Map<String, String> properties) {
    throw noNamespaces();
  }

  @Override
  public void alterNamespace(String[] namespace, NamespaceChange... changes) {
    throw noNamespaces();
  }

  @Override
  public boolean dropNamespace(String[] namespace, boolean cascade) {
    throw noNamespaces();
  }

  private UnsupportedOperationException noNamespaces() {
    return new UnsupportedOperationException(
        "catalog "
            + folder.catalog()
            + " is one folder of tables, without namespaces: another folder is another catalog, "
            + "spark.sql.catalog.name.root");
  }

  private static void checkRoot(String[] namespace) throws NoSuchNamespaceException {
    if (namespace.length > 0) {
      throw new NoSuchNamespaceException(namespace);
    }
  }

  /** The name in the folder; {@code t$history} for {@code t.history}. */
  private static String path(Identifier table) {
    String namespace = String.join("$", table.namespace());
    return namespace.isEmpty() ? table.name() : namespace + "$" + table.name();
  }

  private static JsonNode found(Identifier table, JsonNode answer) throws NoSuchTableException {
    if (!answer.get("found").asBoolean()) {
      throw new NoSuchTableException(table);
    }
    return answer;
  }
}
