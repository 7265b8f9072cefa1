package io.memwal.spark;

import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.time.Instant;
import java.time.LocalDate;
import java.time.temporal.ChronoUnit;
import org.apache.spark.sql.catalyst.expressions.Cast$;
import org.apache.spark.sql.connector.catalog.CatalogV2Util;
import org.apache.spark.sql.connector.catalog.Column;
import org.apache.spark.sql.connector.catalog.DefaultValue;
import org.apache.spark.sql.connector.catalog.TableChange;
import org.apache.spark.sql.connector.catalog.TableInfo;
import org.apache.spark.sql.connector.catalog.constraints.Constraint;
import org.apache.spark.sql.connector.catalog.constraints.PrimaryKey;
import org.apache.spark.sql.connector.expressions.Cast;
import org.apache.spark.sql.connector.expressions.Expression;
import org.apache.spark.sql.connector.expressions.Literal;
import org.apache.spark.sql.connector.expressions.NamedReference;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.types.BooleanType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.NumericType;
import org.apache.spark.sql.types.StringType;
import org.apache.spark.sql.types.StructType;
import scala.Option;

/** Spark's statements as requests; memwal_sql/spark/driver judges them. */
final class Requests {
  private Requests() {}

  /** Adds what CREATE or REPLACE TABLE says. */
  static ObjectNode define(ObjectNode request, TableInfo info) {
    Column[] columns = info.columns();
    request.put("columns", CatalogV2Util.v2ColumnsToStructType(columns).json());
    request.putObject("defaults");
    ArrayNode partitions = request.putArray("partitions");
    for (Transform transform : info.partitions()) {
      transform(partitions.addObject(), transform);
    }
    ObjectNode properties = request.putObject("properties");
    info.properties().forEach(properties::put);
    ArrayNode constraints = request.putArray("constraints");
    for (Constraint constraint : info.constraints()) {
      ObjectNode described = constraints.addObject().put("text", constraint.toDDL());
      if (constraint instanceof PrimaryKey key) {
        ArrayNode names = described.putArray("primaryKey");
        for (NamedReference column : key.columns()) {
          names.add(String.join(".", column.fieldNames()));
        }
      }
    }
    request.put("provider", SQLConf.get().defaultDataSourceName());
    request.putObject("options");
    return request;
  }

  /** Adds the defaults of columns. */
  static void defaults(ObjectNode request, Column[] columns) {
    ObjectNode defaults = request.putObject("defaults");
    for (Column column : columns) {
      if (column.defaultValue() != null) {
        defaults.put(column.name(), text(column.name(), column.defaultValue()));
      }
    }
  }

  /** What ALTER TABLE says. */
  static ArrayNode changes(TableChange[] changes) {
    ArrayNode described = Python.arguments().putArray("changes");
    for (TableChange change : changes) {
      change(described.addObject(), change);
    }
    return described;
  }

  private static void change(ObjectNode node, TableChange change) {
    if (change instanceof TableChange.ColumnChange column) {
      ArrayNode path = node.putArray("column");
      for (String name : column.fieldNames()) {
        path.add(name);
      }
    }
    if (change instanceof TableChange.AddColumn add) {
      node.put("kind", "add");
      StructType columns = new StructType();
      String name = add.fieldNames()[add.fieldNames().length - 1];
      columns =
          add.comment() == null
              ? columns.add(name, add.dataType(), add.isNullable())
              : columns.add(name, add.dataType(), add.isNullable(), add.comment());
      node.put("columns", columns.json());
      node.put("position", add.position() == null ? null : add.position().toString());
      node.put("default", add.defaultValue() == null ? null : add.defaultValue().getSql());
    } else if (change instanceof TableChange.RenameColumn rename) {
      node.put("kind", "rename").put("new", rename.newName());
    } else if (change instanceof TableChange.DeleteColumn delete) {
      node.put("kind", "drop").put("ifExists", delete.ifExists());
    } else if (change instanceof TableChange.UpdateColumnType update) {
      StructType columns = new StructType().add("type", update.newDataType());
      node.put("kind", "type").put("columns", columns.json());
    } else if (change instanceof TableChange.UpdateColumnNullability update) {
      node.put("kind", "nullable").put("nullable", update.nullable());
    } else if (change instanceof TableChange.UpdateColumnDefaultValue update) {
      node.put("kind", "default");
      DefaultValue value = update.newCurrentDefault();
      boolean none = value == null || value.getSql() == null || value.getSql().isEmpty();
      node.put("default", none ? null : text(String.join(".", update.fieldNames()), value));
    } else {
      node.put("kind", kind(change));
    }
  }

  /** The kinds that a table can't have. */
  private static String kind(TableChange change) {
    if (change instanceof TableChange.UpdateColumnComment) {
      return "comment";
    }
    if (change instanceof TableChange.UpdateColumnPosition) {
      return "position";
    }
    if (change instanceof TableChange.AddConstraint
        || change instanceof TableChange.DropConstraint) {
      return "constraint";
    }
    return change instanceof TableChange.ClusterBy ? "cluster" : "property";
  }

  private static void transform(ObjectNode node, Transform transform) {
    node.put("name", transform.name());
    ArrayNode columns = node.putArray("columns");
    ArrayNode numbers = node.putArray("numbers");
    for (Expression argument : transform.arguments()) {
      if (argument instanceof NamedReference column) {
        columns.add(String.join(".", column.fieldNames()));
      } else if (argument instanceof Literal<?> literal) {
        numbers.add(String.valueOf(literal.value()));
      } else {
        numbers.add(argument.toString());
      }
    }
  }

  /**
   * The constant of DEFAULT, as Arrow reads the text of a value. Throws
   * UnsupportedOperationException for what is not one, or has no text.
   */
  private static String text(String column, DefaultValue value) {
    var constant = constant(value.getExpression());
    Object found = constant == null ? null : constant.eval(null);
    if (found == null) {
      throw refusal(column, value, "is not a constant");
    }
    DataType type = constant.dataType();
    if (type.equals(DataTypes.DateType)) {
      return LocalDate.ofEpochDay((Integer) found).toString();
    }
    if (type.equals(DataTypes.TimestampType) || type.equals(DataTypes.TimestampNTZType)) {
      String time = Instant.EPOCH.plus((Long) found, ChronoUnit.MICROS).toString();
      return type.equals(DataTypes.TimestampType) ? time : time.substring(0, time.length() - 1);
    }
    if (type instanceof NumericType || type instanceof StringType || type instanceof BooleanType) {
      return found.toString();
    }
    throw refusal(column, value, "has a type that no default can have, " + type.sql());
  }

  /** The constant, cast as Spark casts; null if it is none. */
  private static org.apache.spark.sql.catalyst.expressions.Expression constant(
      Expression expression) {
    if (expression instanceof Cast cast) {
      var inner = constant(cast.expression());
      Option<String> zone = Option.apply(SQLConf.get().sessionLocalTimeZone());
      return inner == null ? null : Cast$.MODULE$.apply(inner, cast.dataType(), zone, true);
    }
    return expression instanceof Literal<?> literal
        ? new org.apache.spark.sql.catalyst.expressions.Literal(literal.value(), literal.dataType())
        : null;
  }

  private static UnsupportedOperationException refusal(
      String column, DefaultValue value, String reason) {
    return new UnsupportedOperationException(
        "column " + column + ": DEFAULT " + value.getSql() + " " + reason
            + ": give the column in each row");
  }
}
