package io.memwal.spark;

import org.apache.spark.sql.connector.metric.CustomMetric;
import org.apache.spark.sql.connector.metric.CustomTaskMetric;
import org.apache.spark.sql.connector.write.BatchWrite;
import org.apache.spark.sql.connector.write.DataWriterFactory;
import org.apache.spark.sql.connector.write.MergeSummary;
import org.apache.spark.sql.connector.write.PhysicalWriteInfo;
import org.apache.spark.sql.connector.write.SupportsTruncate;
import org.apache.spark.sql.connector.write.Write;
import org.apache.spark.sql.connector.write.WriteBuilder;
import org.apache.spark.sql.connector.write.WriteSummary;
import org.apache.spark.sql.connector.write.WriterCommitMessage;
import org.apache.spark.sql.connector.write.streaming.StreamingWrite;

/**
 * A write by Spark's Python source. Spark plans a MERGE that only inserts as one, which shows when it
 * commits: such rows must be new, while others are upserts.
 */
final class InsertWrite implements SupportsTruncate {
  private final CatalogTable table;
  private final WriteBuilder python;

  InsertWrite(CatalogTable table, WriteBuilder python) {
    this.table = table;
    this.python = python;
  }

  @Override
  public WriteBuilder truncate() {
    return ((SupportsTruncate) python).truncate();
  }

  @Override
  public Write build() {
    return new OfRows(table, python.build());
  }

  private record OfRows(CatalogTable table, Write python) implements Write {
    @Override
    public String description() {
      return python.description();
    }

    @Override
    public BatchWrite toBatch() {
      return new OfBatch(table, python.toBatch());
    }

    @Override
    public StreamingWrite toStreaming() {
      return python.toStreaming();
    }

    @Override
    public CustomMetric[] supportedCustomMetrics() {
      return python.supportedCustomMetrics();
    }

    @Override
    public CustomTaskMetric[] reportDriverMetrics() {
      return python.reportDriverMetrics();
    }
  }

  private record OfBatch(CatalogTable table, BatchWrite python) implements BatchWrite {
    @Override
    public DataWriterFactory createBatchWriterFactory(PhysicalWriteInfo info) {
      return python.createBatchWriterFactory(info);
    }

    @Override
    public boolean useCommitCoordinator() {
      return python.useCommitCoordinator();
    }

    @Override
    public void commit(WriterCommitMessage[] messages) {
      python.commit(messages);
    }

    @Override
    public void commit(WriterCommitMessage[] messages, WriteSummary summary) {
      if (summary instanceof MergeSummary) {
        Publication.publish(table.inserting(), new byte[0], messages);
        python.abort(messages); // what was staged is not needed any more
      } else {
        python.commit(messages, summary);
      }
    }

    @Override
    public void abort(WriterCommitMessage[] messages) {
      python.abort(messages);
    }
  }
}
