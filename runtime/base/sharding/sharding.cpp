#include "runtime/base/sharding/sharding.h"
#include <algorithm>

namespace cleave::dist {
namespace {

bool contains(const Axes &axes, const std::string &axis) {
  return std::find(axes.begin(), axes.end(), axis) != axes.end();
}

void remove(Axes &axes, const std::string &axis) {
  axes.erase(std::remove(axes.begin(), axes.end(), axis), axes.end());
}

bool isPrefix(const Axes &prefix, const Axes &whole) {
  return prefix.size() <= whole.size() && std::equal(prefix.begin(), prefix.end(), whole.begin());
}

std::string join(const Axes &axes) {
  std::string text;
  for (const std::string &axis : axes) text += (text.empty() ? "" : ",") + axis;
  return text;
}

// Reads one layout text; every step says whether it matched.
struct Reader {
  const std::string &text;
  size_t at = 0;

  void skipSpace() {
    while (at < text.size() && text[at] == ' ') ++at;
  }
  bool take(const std::string &token) {
    skipSpace();
    if (text.compare(at, token.size(), token) != 0) return false;
    at += token.size();
    return true;
  }
  bool name(std::string &result) {
    skipSpace();
    size_t begin = at;
    while (at < text.size() && (std::isalnum(static_cast<unsigned char>(text[at])) || text[at] == '_')) ++at;
    result = text.substr(begin, at - begin);
    return at > begin;
  }
  // "a,b" up to `close`, which is taken; may be empty.
  bool list(Axes &axes, const std::string &close) {
    if (take(close)) return true;
    do {
      std::string axis;
      if (!name(axis)) return false;
      axes.push_back(axis);
    } while (take(","));
    return take(close);
  }
};

// The state of a reshard under way: the steps so far and the layout they lead to.
struct Resharding {
  const Mesh &mesh;
  const Sharding &to;
  Sharding now;
  std::vector<ReshardStep> steps;

  void add(ReshardStep step) {
    if (mesh.groupSize(step.axes) > 1) steps.push_back(std::move(step));
  }
  bool used(const std::string &axis) const { return now.uses(axis); }

  // Cuts a dimension by axes that hold equal values so far.
  bool slice(size_t dim) {
    Axes axes = wantedNext(dim, [&](const std::string &axis) { return !used(axis); });
    if (axes.empty()) return false;
    append(dim, axes);
    add({Collective::OwnPart, axes, static_cast<int64_t>(dim)});
    return true;
  }
  bool reduceScatter(size_t dim) {
    Axes axes = wantedNext(dim, [&](const std::string &axis) { return contains(now.partial, axis); });
    if (axes.empty()) return false;
    for (const std::string &axis : axes) remove(now.partial, axis);
    append(dim, axes);
    add({Collective::ReduceScatter, axes, static_cast<int64_t>(dim), -1, now.reduction});
    return true;
  }
  // Moves the minor axes of another dimension here.
  bool allToAll(size_t dim) {
    for (size_t other = 0; other < now.dims.size(); ++other) {
      if (other == dim) continue;
      const Axes &source = now.dims[other];
      Axes next = wantedNext(dim, [&](const std::string &axis) { return contains(source, axis); });
      for (size_t count = next.size(); count > 0; --count) {
        if (!std::equal(next.begin(), next.begin() + count, source.end() - count)) continue;
        Axes axes(next.begin(), next.begin() + count);
        now.dims[other].resize(source.size() - count);
        append(dim, axes);
        add({Collective::AllToAll, axes, static_cast<int64_t>(other), static_cast<int64_t>(dim)});
        return true;
      }
    }
    return false;
  }
  bool allReduce() {
    Axes axes;
    for (const std::string &axis : now.partial)
      if (!contains(to.partial, axis)) axes.push_back(axis);
    if (axes.empty()) return false;
    for (const std::string &axis : axes) remove(now.partial, axis);
    add({Collective::AllReduce, axes, -1, -1, now.reduction});
    return true;
  }
  bool allGather(size_t dim) {
    Axes &current = now.dims[dim];
    const Axes &wanted = to.dims[dim];
    if (isPrefix(current, wanted)) return false;
    size_t common = 0;
    while (common < current.size() && common < wanted.size() && current[common] == wanted[common]) ++common;
    Axes axes(current.begin() + common, current.end());
    current.resize(common);
    add({Collective::AllGather, axes, static_cast<int64_t>(dim)});
    return true;
  }

private:
  // The axes that `to` wants next, minor to those that split `dim` now, as long as they are `fit`.
  template <typename Fit> Axes wantedNext(size_t dim, Fit fit) const {
    const Axes &current = now.dims[dim], &wanted = to.dims[dim];
    Axes axes;
    if (!isPrefix(current, wanted)) return axes;
    for (size_t i = current.size(); i < wanted.size() && fit(wanted[i]); ++i) axes.push_back(wanted[i]);
    return axes;
  }
  void append(size_t dim, const Axes &axes) { now.dims[dim].insert(now.dims[dim].end(), axes.begin(), axes.end()); }
};

} // namespace

bool Sharding::isReplicated() const {
  return partial.empty() && std::all_of(dims.begin(), dims.end(), [](const Axes &axes) { return axes.empty(); });
}

bool Sharding::uses(const std::string &axis) const {
  return contains(partial, axis) ||
         std::any_of(dims.begin(), dims.end(), [&](const Axes &axes) { return contains(axes, axis); });
}

std::string Sharding::str() const {
  std::string text = "[";
  for (size_t i = 0; i < dims.size(); ++i) text += (i ? ",{" : "{") + join(dims[i]) + "}";
  text += "]";
  if (partial.empty()) return text;
  const char *word = reduction == Reduction::Sum   ? " partial("
                     : reduction == Reduction::Max ? " partial_max("
                                                   : " partial_min(";
  return text + word + join(partial) + ")";
}

bool Sharding::parse(const std::string &text, Sharding &sharding, std::string &error) {
  Reader reader{text};
  Sharding result;
  auto fail = [&](const std::string &what) {
    error = what + " at position " + std::to_string(reader.at) + " of '" + text +
            "'; write one {axes} a dimension, e.g. [{dp},{}] partial(tp)";
    return false;
  };
  if (!reader.take("[")) return fail("'[' expected");
  if (!reader.take("]")) {
    do {
      Axes axes;
      if (!reader.take("{") || !reader.list(axes, "}")) return fail("a dimension's {axes} expected");
      result.dims.push_back(std::move(axes));
    } while (reader.take(","));
    if (!reader.take("]")) return fail("']' expected");
  }
  reader.skipSpace();
  if (reader.at < text.size()) {
    if (reader.take("partial_max("))
      result.reduction = Reduction::Max;
    else if (reader.take("partial_min("))
      result.reduction = Reduction::Min;
    else if (!reader.take("partial("))
      return fail("'partial(' or the end expected");
    if (!reader.list(result.partial, ")")) return fail("axes and ')' expected");
  }
  reader.skipSpace();
  if (reader.at != text.size()) return fail("end expected");
  Axes seen = result.partial;
  for (const Axes &axes : result.dims) seen.insert(seen.end(), axes.begin(), axes.end());
  std::sort(seen.begin(), seen.end());
  if (std::adjacent_find(seen.begin(), seen.end()) != seen.end())
    return fail("axis '" + *std::adjacent_find(seen.begin(), seen.end()) + "' stands twice");
  sharding = std::move(result);
  return true;
}

bool localShape(const Mesh &mesh, const Sharding &sharding, const std::vector<int64_t> &global,
                std::vector<int64_t> &local, std::string &error) {
  if (sharding.dims.size() != global.size()) {
    error = "layout " + sharding.str() + " has " + std::to_string(sharding.dims.size()) +
            " dimensions, the tensor has " + std::to_string(global.size());
    return false;
  }
  Axes seen = sharding.partial;
  std::vector<int64_t> result = global;
  for (size_t dim = 0; dim < global.size(); ++dim) {
    seen.insert(seen.end(), sharding.dims[dim].begin(), sharding.dims[dim].end());
    int64_t parts = mesh.groupSize(sharding.dims[dim]);
    if (global[dim] % parts != 0) {
      error = "dimension " + std::to_string(dim) + " of size " + std::to_string(global[dim]) +
              " does not divide evenly into " + std::to_string(parts) + " parts (" + sharding.str() + ")";
      return false;
    }
    result[dim] = global[dim] / parts;
  }
  std::sort(seen.begin(), seen.end());
  auto twice = std::adjacent_find(seen.begin(), seen.end());
  if (twice != seen.end()) {
    error = "axis '" + *twice + "' is used twice in " + sharding.str();
    return false;
  }
  local = std::move(result);
  return true;
}

std::vector<ReshardStep> reshard(const Mesh &mesh, const Sharding &from, const Sharding &to) {
  if (from == to || from.dims.size() != to.dims.size()) return {};
  Resharding state{mesh, to, from, {}};
  size_t rank = to.dims.size();
  auto any = [&](auto step) {
    for (size_t dim = 0; dim < rank; ++dim)
      if (step(dim)) return true;
    return false;
  };
  // Steps that shrink the tensor come first, then those that keep its size, and those that grow it last. A gather can
  // make a cut possible.
  for (;;) {
    if (any([&](size_t dim) { return state.slice(dim); })) continue;
    if (any([&](size_t dim) { return state.reduceScatter(dim); })) continue;
    if (any([&](size_t dim) { return state.allToAll(dim); })) continue;
    if (state.allReduce()) continue;
    if (any([&](size_t dim) { return state.allGather(dim); })) continue;
    return state.steps;
  }
}

double trafficBytes(const Mesh &mesh, const ReshardStep &step, double localBytes) {
  double n = static_cast<double>(mesh.groupSize(step.axes));
  switch (step.kind) {
  case Collective::AllReduce:
    return 2 * (n - 1) / n * localBytes;
  case Collective::ReduceScatter:
  case Collective::AllToAll:
    return (n - 1) / n * localBytes;
  case Collective::AllGather:
    return (n - 1) * localBytes;
  default: // no reshard broadcasts or shifts
    return 0;
  }
}

double bytesAfter(const Mesh &mesh, const ReshardStep &step, double localBytes) {
  double n = static_cast<double>(mesh.groupSize(step.axes));
  switch (step.kind) {
  case Collective::AllGather:
    return localBytes * n;
  case Collective::ReduceScatter:
  case Collective::OwnPart:
    return localBytes / n;
  default:
    return localBytes;
  }
}

} // namespace cleave::dist
