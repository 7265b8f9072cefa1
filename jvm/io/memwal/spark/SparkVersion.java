package io.memwal.spark;

/** The minor version of Spark that these classes are compiled for: they use internal ones of it. */
public final class SparkVersion {
  private SparkVersion() {}

  /** Throws IllegalArgumentException unless the session's Spark has the jar's minor version. */
  static void check() {
    check(org.apache.spark.package$.MODULE$.SPARK_VERSION());
  }

  /** Throws IllegalArgumentException unless {@code running}, such as 4.3.1, has the jar's version. */
  public static void check(String running) {
    String[] parts = running.split("\\.", 3);
    if (parts.length < 2 || !BuildInfo.SPARK_MINOR.equals(parts[0] + "." + parts[1])) {
      throw new IllegalArgumentException(
          "the jar of memwal_sql is built for Spark "
              + BuildInfo.SPARK_MINOR
              + ", and this is Spark "
              + running
              + ": install pyspark=="
              + BuildInfo.SPARK_MINOR
              + ".*, or leave the jar out of spark.jars");
    }
  }
}
