#include "test/unit/cuda/fake/dnn_interpreter.h"
#include "test/unit/cuda/fake/numbers.h"
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <memory>

using namespace cleave::runtime::cuda;

namespace fake {
namespace {

using Sizes = std::vector<int64_t>;

// A tensor's elements: in the caller's memory, or held here.
struct Elements {
  int type = dnnFloat;
  Sizes sizes, strides;
  void *given = nullptr;
  std::shared_ptr<std::vector<double>> held;

  int64_t count() const {
    int64_t all = 1;
    for (int64_t size : sizes) all *= size;
    return all;
  }
  int64_t place(const Sizes &at) const { // repeated where a size is 1; several heads may share one
    int64_t offset = 0;
    for (size_t d = 0; d < sizes.size(); ++d) offset += at[d] * strides[d];
    return offset;
  }
  static Number numberOf(int type) {
    return type == dnnHalf       ? Number::F16
           : type == dnnBfloat16 ? Number::Bf16
           : type == dnnDouble   ? Number::F64
                                 : Number::F32;
  }
  double get(const Sizes &at) const {
    if (held) return (*held)[static_cast<size_t>(place(at))];
    if (type == dnnInt32) return static_cast<const int32_t *>(given)[place(at)];
    return load(numberOf(type), given, place(at));
  }
  void set(const Sizes &at, double value) const {
    if (!held) return store(numberOf(type), given, place(at), value);
    double bytes = 0; // room for any type
    if (type != dnnInt32 && type != dnnBoolean) {
      store(numberOf(type), &bytes, 0, value);
      value = load(numberOf(type), &bytes, 0);
    }
    (*held)[static_cast<size_t>(place(at))] = value;
  }
};

// Visits every position of `sizes`.
template <typename Visit> void visitAll(const Sizes &sizes, Visit visit) {
  Sizes at(sizes.size());
  int64_t count = 1;
  for (int64_t size : sizes) count *= size;
  for (int64_t i = 0; i < count; ++i) {
    int64_t rest = i;
    for (size_t d = sizes.size(); d-- > 0; rest /= sizes[d]) at[d] = rest % sizes[d];
    visit(at);
  }
}

class Interpreter {
public:
  explicit Interpreter(const std::map<int64_t, void *> &memory) : memory(memory) {}

  void run(const Descriptor &operation) {
    switch (operation.kind) {
    case dnnPointwiseOperation:
      return pointwise(operation);
    case dnnMatmulOperation:
      return matmul(operation);
    case dnnReductionOperation:
      return reduce(operation);
    case dnnReshapeOperation: {
      Elements x = elements(operation, dnnReshapeX), y = described(operation, dnnReshapeY);
      y.given = x.given, y.held = x.held, y.type = x.type;
      if (described(operation, dnnReshapeY).type != x.type) { // rounded on the way
        Elements rounded = y;
        rounded.type = described(operation, dnnReshapeY).type;
        rounded.held = std::make_shared<std::vector<double>>(*x.held);
        visitAll(y.sizes, [&](const Sizes &at) { rounded.set(at, y.get(at)); });
        y = rounded;
      }
      known[idOf(operation, dnnReshapeY)] = y;
      return;
    }
    default:
      std::abort(); // no operation that is known here
    }
  }

private:
  static int64_t idOf(const Descriptor &operation, int name) {
    return operation.one<Descriptor *>(name)->one<int64_t>(dnnTensorUniqueId);
  }
  static Elements described(const Descriptor &operation, int name) {
    const Descriptor &d = *operation.one<Descriptor *>(name);
    return {.type = d.one<int>(dnnTensorDataType),
            .sizes = d.all<int64_t>(dnnTensorDimensions),
            .strides = d.all<int64_t>(dnnTensorStrides),
            .held = nullptr};
  }
  Elements elements(const Descriptor &operation, int name) {
    int64_t id = idOf(operation, name);
    if (auto found = known.find(id); found != known.end()) return found->second;
    Elements made = described(operation, name);
    if (operation.one<Descriptor *>(name)->one<char>(dnnTensorIsVirtual)) {
      int64_t last = 0;
      for (size_t d = 0; d < made.sizes.size(); ++d) last += (made.sizes[d] - 1) * made.strides[d];
      made.held = std::make_shared<std::vector<double>>(static_cast<size_t>(last + 1), std::nan(""));
    } else {
      made.given = memory.at(id);
    }
    return known[id] = made;
  }
  // The element that meets position `at` of a larger tensor.
  static double meeting(const Elements &x, const Sizes &at) {
    if (x.sizes.size() == 1) return x.get({0});
    Sizes own(at);
    for (size_t d = 0; d < own.size(); ++d)
      if (x.sizes[d] == 1) own[d] = 0;
    return x.get(own);
  }

  void pointwise(const Descriptor &operation) {
    const Descriptor &how = *operation.one<Descriptor *>(dnnPointwiseOf);
    int mode = how.one<int>(dnnPointwiseMode);
    const bool isBackward = mode == dnnTanhBackward;
    Elements x = elements(operation, dnnPointwiseX),
             y = elements(operation, isBackward ? dnnPointwiseDx : dnnPointwiseY), b, t;
    if (isBackward) b = elements(operation, dnnPointwiseDy);
    if (operation.attributes.count(dnnPointwiseB)) b = elements(operation, dnnPointwiseB);
    if (operation.attributes.count(dnnPointwiseT)) t = elements(operation, dnnPointwiseT);
    visitAll(y.sizes, [&](const Sizes &at) {
      double left = meeting(x, at), right = b.sizes.empty() ? 0 : meeting(b, at);
      switch (mode) {
      case dnnAdd:
        return y.set(at, left + right);
      case dnnMul:
        return y.set(at, left * right);
      case dnnDiv:
        return y.set(at, left / right);
      case dnnSub:
        return y.set(at, left - right);
      case dnnExp:
        return y.set(at, std::exp(left));
      case dnnLog:
        return y.set(at, std::log(left));
      case dnnIdentity:
        return y.set(at, left);
      case dnnTanh:
        return y.set(at, std::tanh(left));
      case dnnTanhBackward:
        return y.set(at, right * (1 - std::tanh(left) * std::tanh(left)));
      case dnnGreater:
        return y.set(at, left > right);
      case dnnGreaterOrEqual:
        return y.set(at, left >= right);
      case dnnGenIndex:
        return y.set(at, static_cast<double>(at[static_cast<size_t>(how.one<int64_t>(dnnPointwiseAxis))]));
      case dnnSelect:
        return y.set(at, meeting(t, at) != 0 ? left : right);
      default:
        std::abort();
      }
    });
  }

  // Batch dimensions of fewer entries are shared by neighbours.
  static Sizes shared(Sizes at, const Elements &of, const Sizes &whole) {
    for (size_t d = 0; d + 2 < at.size(); ++d) at[d] /= whole[d] / of.sizes[d];
    return at;
  }
  void matmul(const Descriptor &operation) {
    Elements a = elements(operation, dnnMatmulA), b = elements(operation, dnnMatmulB),
             y = elements(operation, dnnMatmulC);
    size_t row = y.sizes.size() - 2, column = row + 1;
    visitAll(y.sizes, [&](const Sizes &at) {
      Sizes left = shared(at, a, y.sizes), right = shared(at, b, y.sizes);
      double sum = 0;
      for (int64_t k = 0; k < a.sizes[column]; ++k) {
        left[column] = right[row] = k;
        sum += a.get(left) * b.get(right);
      }
      y.set(at, sum);
    });
  }

  void reduce(const Descriptor &operation) {
    Elements x = elements(operation, dnnReductionX), y = elements(operation, dnnReductionY);
    bool max = operation.one<Descriptor *>(dnnReductionOf)->one<int>(dnnReductionOperator) == dnnReduceMax;
    Sizes parts;
    for (size_t d = 0; d < x.sizes.size(); ++d) parts.push_back(x.sizes[d] / y.sizes[d]);
    visitAll(y.sizes, [&](const Sizes &at) {
      double result = max ? -std::numeric_limits<double>::infinity() : 0;
      visitAll(parts, [&](const Sizes &part) {
        Sizes from(at);
        for (size_t d = 0; d < from.size(); ++d) from[d] = at[d] * parts[d] + part[d];
        result = max ? std::max(result, x.get(from)) : result + x.get(from);
      });
      y.set(at, result);
    });
  }

  const std::map<int64_t, void *> &memory;
  std::map<int64_t, Elements> known;
};

} // namespace

void interpret(const std::vector<Descriptor *> &operations, const std::map<int64_t, void *> &memory) {
  Interpreter interpreter(memory);
  for (const Descriptor *operation : operations) interpreter.run(*operation);
}

} // namespace fake
