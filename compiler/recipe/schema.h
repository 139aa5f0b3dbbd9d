// One row for each key of a recipe: its name, the member that holds it, its meaning, what it is where it is left out,
// and what it may be. The reader, the writer, the table of keys in docs/reference/recipe.md, the checks of a model's
// numbers and the merge with a model's optimizer all follow from the row.
//
//     {"rho", at<&Optimizer::rho>, "as in PyTorch", "0.9", {.range = {.min = 0, .max = 1}, .kinds = "adadelta"}},
//
// What keys say together, such as "amsgrad is for form pytorch", stands in the `check` of their map.
#pragma once
#include "compiler/recipe/keys.h"
#include "compiler/recipe/yaml_reader.h"
#include "compiler/recipe/yaml_writer.h"

namespace cleave::recipe {

template <typename Owner> struct Key;

// How a key is read into its owner and written again.
template <typename Owner> struct Field {
  void (*read)(MapReader &, const Key<Owner> &, Owner &) = nullptr; // null: the row documents the names in a map
  void (*write)(MapWriter &, const Key<Owner> &, const Owner &) = nullptr;
  void (*copy)(Owner &to, const Owner &from) = nullptr;
  void (*list)(const std::string &path, std::vector<KeyRow> &) = nullptr; // of a map: its keys
  std::string (*fault)(const Key<Owner> &, const Owner &) = nullptr;      // a number out of its range

  constexpr Field readBy(decltype(read) other) const { return {other, write, copy, list, fault}; }
  constexpr Field writtenBy(decltype(write) other) const { return {read, other, copy, list, fault}; }
};

template <typename Owner> struct Key {
  const char *name; // "*": the keys of another schema, in the same map; "": and they are documented in its place
  Field<Owner> field;
  const char *meaning;       // markdown
  const char *fallback = ""; // where the key is left out; "": nothing to say
  Rule rule = {};

  bool isInline() const { return *name == '\0' || *name == '*'; }
};

// The keys of one map.
template <typename Owner> struct Schema {
  static const Schema of;

  std::vector<Key<Owner>> keys;                  // the line of the first is the owner's `where`
  void (*start)(MapReader &, Owner &) = nullptr; // before all keys: the kind, and the defaults that follow from it
  void (*check)(MapReader &, Owner &) = nullptr; // after all keys
  std::string (*kind)(const Owner &) = nullptr;  // keys whose `kinds` lack it are not written
  bool (*isWritten)(const Owner &, std::string_view key) = nullptr;
};
template <> const Schema<Recipe> Schema<Recipe>::of;
template <> const Schema<RampStage> Schema<RampStage>::of;
template <> const Schema<Loss> Schema<Loss>::of;
template <> const Schema<Labels> Schema<Labels>::of;
template <> const Schema<Optimizer> Schema<Optimizer>::of;
template <> const Schema<Schedule> Schema<Schedule>::of;
template <> const Schema<OptimizerGroup> Schema<OptimizerGroup>::of;
template <> const Schema<ClipGroup> Schema<ClipGroup>::of;
template <> const Schema<SkipOutliers> Schema<SkipOutliers>::of;
template <> const Schema<LossScale> Schema<LossScale>::of;
template <> const Schema<Fp8> Schema<Fp8>::of;
template <> const Schema<Init> Schema<Init>::of;
template <> const Schema<InitRule> Schema<InitRule>::of;
template <> const Schema<Lora> Schema<Lora>::of;
template <> const Schema<Data> Schema<Data>::of;
template <> const Schema<runtime::Augment> Schema<runtime::Augment>::of;
template <> const Schema<runtime::ResizedCrop> Schema<runtime::ResizedCrop>::of;
template <> const Schema<Ema> Schema<Ema>::of;
template <> const Schema<Eval> Schema<Eval>::of;
template <> const Schema<Metric> Schema<Metric>::of;

template <typename Owner> void readKeys(MapReader &reader, const Schema<Owner> &schema, Owner &owner) {
  for (const Key<Owner> &key : schema.keys)
    if (*key.rule.required != '\0' && reader.isEmpty(key.name)) reader.fail(key.name, key.rule.required);
  if (schema.start) schema.start(reader, owner);
  for (const Key<Owner> &key : schema.keys)
    if (key.field.read) key.field.read(reader, key, owner);
  if constexpr (requires { owner.where; }) owner.where = reader.where(schema.keys.front().name);
  if (schema.check) schema.check(reader, owner);
}

template <typename Owner> void writeKeys(MapWriter &writer, const Schema<Owner> &schema, const Owner &owner) {
  for (const Key<Owner> &key : schema.keys) {
    const bool isUsed = !schema.kind || isOneOf(key.rule.kinds, schema.kind(owner));
    if (key.field.write && isUsed && (!schema.isWritten || schema.isWritten(owner, key.name)))
      key.field.write(writer, key, owner);
  }
}

template <typename Owner>
void listKeys(const std::string &path, const Schema<Owner> &schema, std::vector<KeyRow> &rows) {
  for (const Key<Owner> &key : schema.keys) {
    if (*key.name != '\0') rows.push_back({path + key.name, key.meaning, key.fallback, key.rule.kinds});
    if (key.field.list) key.field.list(path + key.name + (key.isInline() ? "" : "."), rows);
  }
}

// A struct is a map with a schema, and a vector of them is a list of maps.
template <typename T>
concept HasSchema = std::is_class_v<T> && std::is_aggregate_v<T>;
template <typename T>
concept HoldsMaps = HasSchema<typename T::value_type>;
template <typename T>
concept IsOptional = requires(T value) { value.has_value(); };

template <typename Owner> void readMap(MapReader map, const Schema<Owner> &schema, Owner &owner) {
  readKeys(map, schema, owner);
  map.finish();
}

template <typename T>
void readMaps(MapReader &map, const char *key, const Rule &rule, const Schema<T> &schema, std::vector<T> &values) {
  for (MapReader &entry : map.list(key, rule)) readMap(entry, schema, values.emplace_back());
}

template <typename T> void readValue(MapReader &map, const char *key, const Rule &rule, T &value) {
  if constexpr (HasSchema<T>) {
    readMap(map.map(key), Schema<T>::of, value);
  } else if constexpr (IsOptional<T>) {
    if (map.has(key)) readValue(map, key, rule, value.emplace());
  } else if constexpr (HoldsMaps<T>) {
    readMaps(map, key, rule, Schema<typename T::value_type>::of, value);
  } else if constexpr (requires { typename T::mapped_type; }) {
    MapReader entries = map.map(key);
    for (const std::string &name : entries.keys()) {
      if (*rule.words != '\0' && entries.isNull(name)) entries.unknownWord(name, "", splitWords(rule.words));
      readValue(entries, name.c_str(), rule, value[name]);
    }
  } else {
    map.read(key, value, rule);
  }
}

template <typename T> void writeValue(MapWriter &map, const std::string &key, const Rule &rule, const T &value) {
  if constexpr (HasSchema<T>) {
    map.map(key, [&] { writeKeys(map, Schema<T>::of, value); });
  } else if constexpr (IsOptional<T>) {
    if (value) writeValue(map, key, rule, *value);
  } else if constexpr (HoldsMaps<T>) {
    map.list(key, value, [&](const auto &entry) { writeKeys(map, Schema<typename T::value_type>::of, entry); });
  } else if constexpr (requires { typename T::mapped_type; }) {
    map.map(key, [&] {
      for (const auto &[name, entry] : value) writeValue(map, name, {}, entry);
    });
  } else {
    map.write(key, value, rule);
  }
}

template <typename T> bool isUsual(const T &value, const T &usual) {
  if constexpr (HasSchema<T> || IsOptional<T>)
    return false;
  else if constexpr (HoldsMaps<T>)
    return value.empty();
  else
    return value == usual;
}

template <typename Member> struct MemberTypes;
template <typename Of, typename T> struct MemberTypes<T Of::*> {
  using Owner = Of;
  using Value = T;
};
template <auto member> using OwnerOf = typename MemberTypes<decltype(member)>::Owner;

// The key is this member.
template <auto member, typename Owner = OwnerOf<member>>
constexpr Field<Owner> at = [] {
  using Value = typename MemberTypes<decltype(member)>::Value;
  Field<Owner> field;
  field.read = [](MapReader &reader, const Key<Owner> &key, Owner &owner) {
    readValue(reader, key.name, key.rule, owner.*member);
  };
  field.write = [](MapWriter &writer, const Key<Owner> &key, const Owner &owner) {
    if (key.rule.isQuiet && isUsual(owner.*member, Owner().*member)) return;
    writeValue(writer, key.name, key.rule, owner.*member);
  };
  field.copy = [](Owner &to, const Owner &from) { to.*member = from.*member; };
  if constexpr (HasSchema<Value>)
    field.list = [](const std::string &path, auto &rows) { listKeys(path, Schema<Value>::of, rows); };
  else if constexpr (HoldsMaps<Value>)
    field.list = [](const std::string &path, auto &rows) {
      listKeys(path, Schema<typename Value::value_type>::of, rows);
    };
  if constexpr (std::is_same_v<Value, double>)
    field.fault = [](const Key<Owner> &key, const Owner &owner) {
      return faultOf(key.name, owner.*member, key.rule.range);
    };
  return field;
}();

// The key is a list of two numbers, such as `betas`.
template <auto first, auto second, typename Owner = OwnerOf<first>>
constexpr Field<Owner> pairAt = [] {
  Field<Owner> field;
  field.read = [](MapReader &reader, const Key<Owner> &key, Owner &owner) {
    std::vector<double> two;
    reader.read(key.name, two, key.rule);
    if (!reader.has(key.name)) return;
    if (two.size() != 2)
      reader.fail(key.name, fmt::format("'{}' must list two numbers, such as [0.9, 0.999]", reader.dotted(key.name)));
    owner.*first = two[0], owner.*second = two[1];
  };
  field.write = [](MapWriter &writer, const Key<Owner> &key, const Owner &owner) {
    const std::optional<double> one = owner.*first, two = owner.*second;
    if (one) writer.write(key.name, std::vector<double>{*one, *two});
  };
  field.copy = [](Owner &to, const Owner &from) { to.*first = from.*first, to.*second = from.*second; };
  return field;
}();

// The key is a list of maps that have a schema of their own, not that of their type.
template <auto member, const auto &schema, typename Owner = OwnerOf<member>>
constexpr Field<Owner> listAt = [] {
  Field<Owner> field;
  field.read = [](MapReader &reader, const Key<Owner> &key, Owner &owner) {
    readMaps(reader, key.name, key.rule, schema, owner.*member);
  };
  field.write = [](MapWriter &writer, const Key<Owner> &key, const Owner &owner) {
    if (key.rule.isQuiet && (owner.*member).empty()) return;
    writer.list(key.name, owner.*member, [&](const auto &entry) { writeKeys(writer, schema, entry); });
  };
  field.list = [](const std::string &path, auto &rows) { listKeys(path, schema, rows); };
  return field;
}();

// The key is a map of more members of its owner; of an inline key they stand in the owner's own map.
template <typename Owner, const Schema<Owner> &schema>
constexpr Field<Owner> mapOf = [] {
  Field<Owner> field;
  field.read = [](MapReader &reader, const Key<Owner> &key, Owner &owner) {
    if (key.isInline()) return readKeys(reader, schema, owner);
    readMap(reader.map(key.name), schema, owner);
  };
  field.write = [](MapWriter &writer, const Key<Owner> &key, const Owner &owner) {
    if (key.isInline()) return writeKeys(writer, schema, owner);
    writer.map(key.name, [&] { writeKeys(writer, schema, owner); });
  };
  field.list = [](const std::string &path, auto &rows) {
    if (!path.ends_with('*')) listKeys(path, schema, rows);
  };
  return field;
}();

} // namespace cleave::recipe
