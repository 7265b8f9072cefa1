package io.memwal.spark;

import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.Base64;
import org.apache.spark.sql.connector.expressions.Expression;
import org.apache.spark.sql.connector.expressions.GeneralScalarExpression;
import org.apache.spark.sql.connector.expressions.Literal;
import org.apache.spark.sql.connector.expressions.NamedReference;
import org.apache.spark.sql.types.Decimal;

/**
 * Spark's conditions as JSON: {"op", "arguments"}, {"column"} with its path, {"type", "value"}, or {}
 * for what has no form there. What they mean, and which of them are used, Python decides.
 */
final class Conditions {
  private Conditions() {}

  static ObjectNode json(Expression expression) {
    ObjectNode node = Python.arguments();
    if (expression instanceof NamedReference reference) {
      ArrayNode path = node.putArray("column");
      for (String part : reference.fieldNames()) {
        path.add(part);
      }
    } else if (expression instanceof Literal<?> literal) {
      node.put("type", literal.dataType().catalogString());
      node.put("value", text(literal.value()));
    } else if (expression instanceof GeneralScalarExpression call) {
      node.put("op", call.name());
      ArrayNode arguments = node.putArray("arguments");
      for (Expression argument : call.children()) {
        arguments.add(json(argument));
      }
    }
    return node;
  }

  /** Dates and timestamps are counts of days and of microseconds here, and bytes base64. */
  private static String text(Object value) {
    if (value instanceof byte[] bytes) {
      return Base64.getEncoder().encodeToString(bytes);
    }
    if (value instanceof Decimal decimal) {
      return decimal.toJavaBigDecimal().toPlainString();
    }
    return value == null ? null : value.toString();
  }
}
