package io.memwal.spark;

import java.util.List;
import org.apache.spark.sql.connector.metric.CustomMetric;
import org.apache.spark.sql.connector.metric.CustomSumMetric;

/** What Spark's UI shows of a scan. Spark makes these classes by their names. */
public final class ScanMetrics {
  static final List<CustomMetric> ALL =
      List.of(new Version(), new Fragments(), new Regions(), new PrunedRegions());

  private ScanMetrics() {}

  /** The version of the base table that is read. */
  public static final class Version extends CustomSumMetric {
    @Override
    public String name() {
      return "version";
    }

    @Override
    public String description() {
      return "version of the base table";
    }
  }

  /** Fragments of the base table. */
  public static final class Fragments extends CustomSumMetric {
    @Override
    public String name() {
      return "fragments";
    }

    @Override
    public String description() {
      return "fragments of the base table";
    }
  }

  /** Regions with rows that are not merged. */
  public static final class Regions extends CustomSumMetric {
    @Override
    public String name() {
      return "regions";
    }

    @Override
    public String description() {
      return "regions read";
    }
  }

  /** Regions that the conditions rule out. */
  public static final class PrunedRegions extends CustomSumMetric {
    @Override
    public String name() {
      return "prunedRegions";
    }

    @Override
    public String description() {
      return "regions ruled out";
    }
  }
}
