package io.memwal.spark;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.List;
import java.util.OptionalLong;
import org.apache.spark.sql.connector.catalog.SupportsRead;
import org.apache.spark.sql.connector.metric.CustomMetric;
import org.apache.spark.sql.connector.metric.CustomTaskMetric;
import org.apache.spark.sql.connector.read.Batch;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.Statistics;
import org.apache.spark.sql.connector.read.SupportsReportStatistics;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.execution.datasources.v2.python.PythonInputPartition;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/** One use of a table, planned: Spark's own classes run its tasks in Python. */
final class MemwalScan implements Scan, Batch, SupportsReportStatistics {
  private final StructType columns;
  private final CaseInsensitiveStringMap options;
  private final JsonNode plan;
  private final byte[] function;
  private final List<byte[]> shares;

  /** The answer's parts are the table's state, what a task runs, and the share of each task. */
  MemwalScan(StructType columns, CaseInsensitiveStringMap options, Python.Answer answer) {
    this.columns = columns;
    this.options = options;
    plan = answer.json();
    function = answer.parts().get(1);
    shares = answer.parts().subList(2, answer.parts().size());
  }

  @Override
  public StructType readSchema() {
    return columns;
  }

  @Override
  public String description() {
    return "(" + plan.get("description").asText() + ")";
  }

  @Override
  public Batch toBatch() {
    return this;
  }

  /** Says why rows are not streamed; changes are, by Spark's own classes. */
  @Override
  public MicroBatchStream toMicroBatchStream(String checkpoint) {
    SupportsRead python = (SupportsRead) MemwalTable.python(columns, options);
    return python.newScanBuilder(options).build().toMicroBatchStream(checkpoint);
  }

  @Override
  public InputPartition[] planInputPartitions() {
    InputPartition[] partitions = new InputPartition[shares.size()];
    for (int number = 0; number < partitions.length; number++) {
      partitions[number] = new PythonInputPartition(number, shares.get(number));
    }
    return partitions;
  }

  @Override
  public PartitionReaderFactory createReaderFactory() {
    return new ColumnReaders(Python.source(), function, columns);
  }

  @Override
  public Statistics estimateStatistics() {
    JsonNode bytes = plan.get("bytes");
    return new Size(
        bytes.isNull() ? OptionalLong.empty() : OptionalLong.of(bytes.asLong()),
        OptionalLong.of(plan.get("rows").asLong()));
  }

  @Override
  public CustomMetric[] supportedCustomMetrics() {
    CustomMetric[] python = Python.source().createPythonMetrics();
    CustomMetric[] all = new CustomMetric[python.length + ScanMetrics.ALL.size()];
    System.arraycopy(python, 0, all, 0, python.length);
    for (int number = 0; number < ScanMetrics.ALL.size(); number++) {
      all[python.length + number] = ScanMetrics.ALL.get(number);
    }
    return all;
  }

  @Override
  public CustomTaskMetric[] reportDriverMetrics() {
    return ScanMetrics.ALL.stream()
        .map(metric -> new Planned(metric.name(), plan.get(metric.name()).asLong()))
        .toArray(CustomTaskMetric[]::new);
  }

  private record Planned(String name, long value) implements CustomTaskMetric {}

  /** Without its bytes Spark takes a relation for too large to be broadcast. */
  private record Size(OptionalLong sizeInBytes, OptionalLong numRows) implements Statistics {}
}
