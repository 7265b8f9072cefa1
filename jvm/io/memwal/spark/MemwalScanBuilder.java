package io.memwal.spark;

import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.Arrays;
import java.util.Comparator;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.connector.expressions.aggregate.Aggregation;
import org.apache.spark.sql.connector.expressions.aggregate.CountStar;
import org.apache.spark.sql.connector.expressions.filter.Predicate;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.connector.read.SupportsPushDownAggregates;
import org.apache.spark.sql.connector.read.SupportsPushDownLimit;
import org.apache.spark.sql.connector.read.SupportsPushDownRequiredColumns;
import org.apache.spark.sql.connector.read.SupportsPushDownV2Filters;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/** Collects what one use of a table needs of it, and plans that by itself. */
final class MemwalScanBuilder
    implements ScanBuilder,
        SupportsPushDownRequiredColumns,
        SupportsPushDownV2Filters,
        SupportsPushDownLimit,
        SupportsPushDownAggregates {
  private final MemwalTable table;
  private final CaseInsensitiveStringMap options;
  private StructType columns;
  private Predicate[] predicates = {};
  private Integer limit;
  private boolean counts;

  MemwalScanBuilder(MemwalTable table, StructType columns, CaseInsensitiveStringMap options) {
    this.table = table;
    this.columns = columns;
    this.options = options;
  }

  /** Where no column is asked for, rows still have to come: by the smallest column. */
  @Override
  public void pruneColumns(StructType required) {
    columns =
        required.length() > 0 || columns.length() == 0
            ? required
            : new StructType(
                new StructField[] {
                  Arrays.stream(columns.fields())
                      .min(Comparator.comparingInt(field -> field.dataType().defaultSize()))
                      .get()
                });
  }

  /** Hands all back: here they only rule rows out that Spark would, so its values stay Spark's. */
  @Override
  public Predicate[] pushPredicates(Predicate[] given) {
    predicates = given;
    return given;
  }

  @Override
  public Predicate[] pushedPredicates() {
    return predicates;
  }

  /** Of each task, as Spark takes the limit again. It calls this only where no filter is left. */
  @Override
  public boolean pushLimit(int most) {
    limit = most;
    return true;
  }

  /** A count of rows: each task counts, and Spark adds. Called only where no filter is left. */
  @Override
  public boolean pushAggregation(Aggregation aggregation) {
    boolean isCount =
        aggregation.groupByExpressions().length == 0
            && aggregation.aggregateExpressions().length == 1
            && aggregation.aggregateExpressions()[0] instanceof CountStar;
    if (isCount) {
      counts = true;
      columns = new StructType().add("count(*)", DataTypes.LongType, false);
    }
    return isCount;
  }

  @Override
  public Scan build() {
    ObjectNode arguments = Python.arguments();
    arguments.put("schema", columns.json());
    ArrayNode conditions = arguments.putArray("conditions");
    for (Predicate predicate : predicates) {
      conditions.add(Conditions.json(predicate));
    }
    arguments.put("limit", limit);
    arguments.put("counts", counts);
    arguments.put("tasks", SparkSession.active().sparkContext().defaultParallelism());
    return new MemwalScan(columns, options, table.plan(options, arguments));
  }
}
