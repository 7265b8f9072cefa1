package io.memwal.spark;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.Set;
import org.apache.spark.sql.catalyst.analysis.NoSuchTableException;
import org.apache.spark.sql.catalyst.analysis.TableAlreadyExistsException;
import org.apache.spark.sql.connector.catalog.Column;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.connector.catalog.StagedTable;
import org.apache.spark.sql.connector.catalog.SupportsWrite;
import org.apache.spark.sql.connector.catalog.TableCapability;
import org.apache.spark.sql.connector.write.LogicalWriteInfo;
import org.apache.spark.sql.connector.write.WriteBuilder;

/**
 * A table that CREATE or REPLACE TABLE describes. It is made when the writer of its first rows is,
 * whose options may have its key; or without rows at the end. An existing table that is replaced by
 * one like it has its rows replaced, in one step.
 */
final class NewTable implements StagedTable, SupportsWrite {
  private final Folder folder;
  private final Identifier identifier;
  private final Column[] columns;
  private final ObjectNode request;
  private CatalogTable made;
  private boolean replaces;

  NewTable(Folder folder, Identifier identifier, Column[] columns, ObjectNode request) {
    this.folder = folder;
    this.identifier = identifier;
    this.columns = columns;
    this.request = request;
  }

  /** Makes the table; {@code empty} says that no rows follow, so that those of another go. */
  CatalogTable make(boolean empty) {
    if (empty) { // the columns of a query have the defaults of the tables that it reads
      Requests.defaults(request, columns);
    }
    JsonNode answer = folder.call("create_table", request.put("empty", empty));
    if (!answer.get("found").asBoolean()) {
      throw Python.<RuntimeException>thrown(new NoSuchTableException(identifier));
    }
    if (answer.has("exists")) {
      throw Python.<RuntimeException>thrown(new TableAlreadyExistsException(identifier));
    }
    replaces = answer.get("replaces").asBoolean();
    made = new CatalogTable(name(), answer, folder);
    return made;
  }

  @Override
  public String name() {
    return folder.catalog() + "." + identifier.name();
  }

  @Override
  public Column[] columns() {
    return columns;
  }

  @Override
  public Set<TableCapability> capabilities() {
    return Set.of(TableCapability.BATCH_WRITE, TableCapability.TRUNCATE);
  }

  /** Of REPLACE, Spark truncates by it, too. */
  @Override
  public WriteBuilder newWriteBuilder(LogicalWriteInfo info) {
    ObjectNode options = request.putObject("options");
    info.options().asCaseSensitiveMap().forEach(options::put);
    return make(false).newWriteBuilder(info);
  }

  @Override
  public void commitStagedChanges() {
    if (made == null) {
      make(true);
    }
  }

  /** Leaves no table after an error, but one that was there, or that others have written to. */
  @Override
  public void abortStagedChanges() {
    if (made != null && !replaces) {
      ObjectNode abandoned = folder.request(identifier.name());
      folder.call("abandon_table", abandoned.put("incarnation", made.id()));
    }
  }
}
