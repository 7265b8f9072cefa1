package io.memwal.spark;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.HashMap;
import java.util.Locale;
import java.util.Map;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/** The settings of a catalog. Storage options may be secrets, and are shown nowhere. */
final class Folder {
  private static final String STORAGE = "storage.";

  private final String catalog;
  private final String root;
  private final Map<String, String> storage = new HashMap<>();
  private final Map<String, String> reading = new HashMap<>();

  private Folder(String catalog, String root) {
    this.catalog = catalog;
    this.root = root;
  }

  /** Throws IllegalArgumentException for a missing or unknown setting, without its value. */
  static Folder of(String catalog, CaseInsensitiveStringMap options) {
    String prefix = "spark.sql.catalog." + catalog + ".";
    if (options.get("root") == null) {
      throw new IllegalArgumentException(
          "catalog " + catalog + " needs " + prefix + "root, the folder of its tables");
    }
    Folder folder = new Folder(catalog, options.get("root"));
    for (Map.Entry<String, String> option : options.entrySet()) {
      String name = option.getKey().toLowerCase(Locale.ROOT);
      if (name.startsWith(STORAGE)) {
        folder.storage.put(name.substring(STORAGE.length()), option.getValue());
      } else if (name.equals("consistency")) {
        folder.reading.put(name, option.getValue());
      } else if (!name.equals("root")) {
        throw new IllegalArgumentException(
            "there is no setting " + prefix + option.getKey()
                + ": a catalog has root, consistency and storage.*");
      }
    }
    return folder;
  }

  String catalog() {
    return catalog;
  }

  String root() {
    return root;
  }

  /** A request about the folder. */
  ObjectNode request() {
    ObjectNode request = Python.arguments().put("root", root);
    ObjectNode options = request.putObject("storage");
    storage.forEach(options::put);
    return request;
  }

  /** A request about a table. */
  ObjectNode request(String table) {
    return request().put("name", table);
  }

  JsonNode call(String operation, ObjectNode request) {
    return Python.call(operation, request).json();
  }

  /** The options of reads of rows alone. */
  Map<String, String> reading() {
    return reading;
  }

  /** The options of format memwal for each use of a table of the folder. */
  Map<String, String> options(JsonNode answer) {
    Map<String, String> options = new HashMap<>();
    storage.forEach((name, value) -> options.put(STORAGE + name, value));
    options.put("path", answer.get("path").asText());
    if (answer.has("moment")) {
      answer.get("moment").properties().forEach(e -> options.put(e.getKey(), e.getValue().asText()));
    }
    return options;
  }
}
