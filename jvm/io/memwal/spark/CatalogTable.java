package io.memwal.spark;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.stream.Stream;
import org.apache.spark.sql.connector.catalog.SupportsDeleteV2;
import org.apache.spark.sql.connector.catalog.SupportsRowLevelOperations;
import org.apache.spark.sql.connector.catalog.TableCapability;
import org.apache.spark.sql.connector.catalog.TableCatalog;
import org.apache.spark.sql.connector.catalog.constraints.Constraint;
import org.apache.spark.sql.connector.expressions.Expression;
import org.apache.spark.sql.connector.expressions.Expressions;
import org.apache.spark.sql.connector.expressions.NamedReference;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.connector.expressions.filter.AlwaysTrue;
import org.apache.spark.sql.connector.expressions.filter.Predicate;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.connector.write.LogicalWriteInfo;
import org.apache.spark.sql.connector.write.RowLevelOperation;
import org.apache.spark.sql.connector.write.RowLevelOperationBuilder;
import org.apache.spark.sql.connector.write.RowLevelOperationInfo;
import org.apache.spark.sql.connector.write.WriteBuilder;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/** A table of a catalog, which shows its key, regions and version. */
final class CatalogTable extends MemwalTable
    implements SupportsDeleteV2, SupportsRowLevelOperations {
  private final JsonNode about;
  private final Folder folder;

  CatalogTable(String name, JsonNode about, Folder folder) {
    super(name, columns(about), folder.options(about));
    this.about = about;
    this.folder = folder;
  }

  static StructType columns(JsonNode about) {
    return (StructType) DataType.fromJson(about.get("columns").asText());
  }

  /** Changes have more columns than the table, so that format memwal alone streams them. */
  @Override
  public Set<TableCapability> capabilities() {
    return Set.of(
        TableCapability.BATCH_READ,
        TableCapability.BATCH_WRITE,
        TableCapability.STREAMING_WRITE,
        TableCapability.TRUNCATE);
  }

  @Override
  public ScanBuilder newScanBuilder(CaseInsensitiveStringMap given) {
    Map<String, String> all = new HashMap<>(folder.reading());
    all.putAll(given);
    return super.newScanBuilder(new CaseInsensitiveStringMap(all));
  }

  /** Spark gives rows all columns before they come here, but those of a stream. */
  @Override
  void checkWrite(CaseInsensitiveStringMap options) {
    if (options.containsKey("missing") && !options.containsKey("checkpointLocation")) {
      throw new UnsupportedOperationException(
          "option missing=" + options.get("missing") + " would be ignored: into " + name()
              + " Spark itself writes the defaults or nulls of columns that the rows lack. Write to "
              + "the table's path, with format(\"memwal\"), mode(\"append\") and save(\""
              + about.get("path").asText() + "\")");
    }
  }

  @Override
  public boolean truncateTable() {
    folder.call("truncate_table", folder.request(about.get("name").asText()));
    return true;
  }

  @Override
  public boolean canDeleteWhere(Predicate[] conditions) {
    return isAll(conditions)
        || folder.call("can_delete", deletion(conditions)).get("can").asBoolean();
  }

  @Override
  public void deleteWhere(Predicate[] conditions) {
    if (isAll(conditions)) {
      truncateTable();
    } else {
      folder.call("delete_rows", deletion(conditions));
    }
  }

  private static boolean isAll(Predicate[] conditions) {
    return Stream.of(conditions).allMatch(AlwaysTrue.class::isInstance);
  }

  private ObjectNode deletion(Predicate[] conditions) {
    ObjectNode request = folder.request(about.get("name").asText());
    ArrayNode trees = request.putArray("conditions");
    for (Predicate condition : conditions) {
      trees.add(Conditions.json(condition));
    }
    return request;
  }

  @Override
  public RowLevelOperationBuilder newRowLevelOperationBuilder(RowLevelOperationInfo info) {
    return () -> new RowChanges(this, info.command());
  }

  @Override
  public WriteBuilder newWriteBuilder(LogicalWriteInfo info) {
    return new InsertWrite(this, super.newWriteBuilder(info));
  }

  /** A request about the changes of a statement. */
  ObjectNode changing(RowLevelOperation.Command command) {
    ObjectNode request = folder.request(about.get("name").asText());
    return request.put("incarnation", id()).put("command", command.toString());
  }

  /** A request about the rows of a MERGE that only inserts. */
  ObjectNode inserting() {
    return changing(RowLevelOperation.Command.MERGE);
  }

  /** Tells the table from one that was dropped; Spark asks before it reads for a frame again. */
  @Override
  public String id() {
    return about.get("incarnation").asText();
  }

  @Override
  public String version() {
    return about.get("version").asText();
  }

  @Override
  public Map<String, String> properties() {
    Map<String, String> properties = new LinkedHashMap<>();
    properties.put("primaryKey", String.join(", ", texts(about.get("primaryKey"))));
    properties.put("regions", about.get("regions").asText());
    properties.put("version", version());
    properties.put(TableCatalog.PROP_PROVIDER, MemwalSource.NAME);
    properties.put(TableCatalog.PROP_LOCATION, about.get("path").asText());
    properties.put(TableCatalog.PROP_IS_MANAGED_LOCATION, "true");
    if (about.hasNonNull("comment")) {
      properties.put(TableCatalog.PROP_COMMENT, about.get("comment").asText());
    }
    return properties;
  }

  @Override
  public Transform[] partitioning() {
    List<Transform> transforms = new ArrayList<>();
    about.get("partitions").forEach(region -> transforms.add(transform(region)));
    return transforms.toArray(Transform[]::new);
  }

  @Override
  public Constraint[] constraints() {
    // Spark has no words for a key that the table sees to.
    Constraint key =
        Constraint.primaryKey("primary_key", key()).enforced(false).rely(true).build();
    return new Constraint[] {key};
  }

  NamedReference[] key() {
    return texts(about.get("primaryKey")).stream()
        .map(Expressions::column)
        .toArray(NamedReference[]::new);
  }

  private static Transform transform(JsonNode region) {
    String name = region.get("name").asText();
    List<String> columns = texts(region.get("columns"));
    JsonNode numbers = region.get("numbers");
    if (name.equals("bucket") || name.equals("multi_bucket")) {
      return Expressions.bucket(numbers.get(0).asInt(), columns.toArray(String[]::new));
    }
    if (name.equals("identity")) {
      return Expressions.identity(columns.get(0));
    }
    List<Expression> arguments = new ArrayList<>();
    columns.forEach(column -> arguments.add(Expressions.column(column)));
    numbers.forEach(number -> arguments.add(Expressions.literal(number.asInt())));
    return Expressions.apply(name, arguments.toArray(Expression[]::new));
  }

  private static List<String> texts(JsonNode array) {
    List<String> texts = new ArrayList<>();
    array.forEach(text -> texts.add(text.asText()));
    return texts;
  }
}
