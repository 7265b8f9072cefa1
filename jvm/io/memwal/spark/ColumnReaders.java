package io.memwal.spark;

import java.util.HashMap;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import org.apache.spark.TaskContext;
import org.apache.spark.api.python.ChainedPythonFunctions;
import org.apache.spark.api.python.PythonEvalType$;
import org.apache.spark.api.python.PythonUtils$;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.connector.metric.CustomTaskMetric;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.execution.datasources.v2.python.PythonCustomMetric$;
import org.apache.spark.sql.execution.datasources.v2.python.PythonInputPartition;
import org.apache.spark.sql.execution.datasources.v2.python.UserDefinedPythonDataSource;
import org.apache.spark.sql.execution.metric.SQLMetric;
import org.apache.spark.sql.execution.python.ArrowPythonRunner;
import org.apache.spark.sql.execution.python.ArrowPythonRunner$;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.vectorized.ArrowColumnVector;
import org.apache.spark.sql.vectorized.ColumnVector;
import org.apache.spark.sql.vectorized.ColumnarBatch;
import scala.Option;
import scala.Tuple2;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Reads each share as columns. Spark's own classes for sources in Python make a row of each value
 * first; its runner below them has the batches as they come from the worker.
 */
final class ColumnReaders implements PartitionReaderFactory {
  private static final long serialVersionUID = 1L;

  private final UserDefinedPythonDataSource source;
  private final byte[] function;
  private final StructType columns;

  ColumnReaders(UserDefinedPythonDataSource source, byte[] function, StructType columns) {
    this.source = source;
    this.function = function;
    this.columns = columns;
  }

  @Override
  public boolean supportColumnarReads(InputPartition partition) {
    return true;
  }

  @Override
  public PartitionReader<InternalRow> createReader(InputPartition partition) {
    throw new UnsupportedOperationException("shares are read as columns");
  }

  @Override
  public PartitionReader<ColumnarBatch> createColumnarReader(InputPartition partition) {
    return new Reader((PythonInputPartition) partition);
  }

  private final class Reader implements PartitionReader<ColumnarBatch> {
    private final scala.collection.immutable.Map<String, SQLMetric> metrics =
        PythonCustomMetric$.MODULE$.pythonMetrics();
    private final scala.collection.Iterator<ColumnarBatch> batches;

    Reader(PythonInputPartition partition) {
      TaskContext task = TaskContext.get();
      Iterator<scala.collection.Iterator<InternalRow>> input =
          List.of(rows(row(row(partition.pickedPartition())))).iterator();
      batches = runner().compute(CollectionConverters.asScala(input), task.partitionId(), task);
    }

    private ArrowPythonRunner runner() {
      SQLConf settings = SQLConf.get();
      var functions = new ChainedPythonFunctions(seq(source.createPythonFunction(function)));
      return new ArrowPythonRunner(
          seq(new Tuple2<>(functions, (Object) 0L)),
          PythonEvalType$.MODULE$.SQL_MAP_ARROW_ITER_UDF(),
          new int[][] {{0}},
          new StructType().add("struct", UserDefinedPythonDataSource.readInputSchema()),
          settings.sessionLocalTimeZone(),
          settings.arrowUseLargeVarTypes(),
          ArrowPythonRunner$.MODULE$.getPythonRunnerConfMap(settings),
          metrics,
          Option.empty(),
          Option.empty());
    }

    @Override
    public boolean next() {
      return batches.hasNext();
    }

    /** The columns of the struct that the runner makes of them. They are valid until the next. */
    @Override
    public ColumnarBatch get() {
      ColumnarBatch batch = batches.next();
      ColumnVector[] vectors = new ColumnVector[columns.length()];
      ArrowColumnVector struct = (ArrowColumnVector) batch.column(0);
      for (int number = 0; number < vectors.length; number++) {
        vectors[number] = new BatchColumn(struct.getChild(number).getValueVector());
      }
      return new ColumnarBatch(vectors, batch.numRows());
    }

    /** The runner stops the worker and frees its memory when the task ends. */
    @Override
    public void close() {}

    @Override
    public CustomTaskMetric[] currentMetricsValues() {
      Map<String, Object> values = new HashMap<>();
      CollectionConverters.asJava(metrics).forEach((name, metric) -> values.put(name, metric.value()));
      return source.createPythonTaskMetrics(PythonUtils$.MODULE$.toScalaMap(values));
    }
  }

  private static InternalRow row(Object value) {
    return new GenericInternalRow(new Object[] {value});
  }

  private static scala.collection.Iterator<InternalRow> rows(InternalRow row) {
    return CollectionConverters.asScala(List.of(row).iterator());
  }

  private static <T> scala.collection.immutable.Seq<T> seq(T item) {
    return CollectionConverters.asScala(List.of(item)).toSeq();
  }
}
