#include "runtime/engine/device/cuda/choose_products.h"
#include "runtime/engine/device/cuda/memory.h"
#include "runtime/plan/library_workspace.h"
#include <algorithm>
#include <chrono>
#include <fmt/format.h>
#include <set>

namespace cleave::runtime::cuda {
namespace {

constexpr int mostCandidates = 8;
constexpr double worthwhile = 0.97; // of the time of one that the library thinks better; less is noise

// Operands of a product in memory of its own, as badly aligned as the plan's.
struct Places {
  Address a, b, d, vector, aux, workspace;
};

class Timer {
public:
  explicit Timer(const Gpu &gpu) : gpu(gpu) {}
  Timer(const Timer &) = delete;
  ~Timer() {
    if (stream) { // memory goes away: nothing may be under way in it
      if (gpu.enter()) gpu.driver.streamSynchronize(stream);
    }
    for (CuEvent event : {begin, end})
      if (event) gpu.driver.eventDestroy(event);
    if (stream) gpu.driver.streamDestroy(stream);
  }

  Status open(const std::map<std::string, Product> &products) {
    CLEAVE_RETURN_IF_ERROR(gpu.enter());
    CLEAVE_RETURN_IF_ERROR(gpu.check(gpu.driver.streamCreate(&stream, streamNonBlocking), "cannot make a stream"));
    for (CuEvent *event : {&begin, &end})
      CLEAVE_RETURN_IF_ERROR(gpu.check(gpu.driver.eventCreate(event, 0), "cannot make an event that keeps the time"));
    int64_t most = 0;
    for (const auto &[key, product] : products) most = std::max(most, static_cast<int64_t>(placesOf(product).second));
    CLEAVE_RETURN_IF_ERROR(memory.allocate(gpu, most, stream));
    // Neither zeros, which take less power, nor numbers that grow: 0.0115 in fp32 and bf16, 1.06 in fp16.
    return gpu.check(gpu.driver.memsetD8Async(memory.address(), 0x3c, static_cast<size_t>(memory.bytes()), stream),
                     "cannot fill memory");
  }

  Places places(const Product &product) const { return placesOf(product).first; }

  // Microseconds of a run: of several in one graph, as in a step, so that what a launch costs the host does not count;
  // the least of some rounds, as whatever comes between only adds to it. Error: the algorithm does not run, or not in a
  // graph.
  Result<double> time(const ProductDescription &description, const MatmulHeuristic &algorithm, const Places &at) const {
    auto start = [&](int times) {
      for (int i = 0; i < times; ++i)
        if (int error = description.run(gpu.blasHandle, algorithm.algorithm, at.a, at.b, at.d, at.workspace,
                                        algorithm.workspaceBytes, stream))
          return blasStatus(*gpu.blas, error, "a matrix product does not start");
      return Status::ok();
    };
    Result<double> warm = timed([&] { return start(1); }); // loads what it needs, which a capture forbids
    if (warm) warm = timed([&] { return start(1); });
    if (!warm) return warm;
    constexpr double enough = 500; // microseconds
    return timedGraph(start, static_cast<int>(std::clamp(enough / std::max(*warm, 1.0), 2.0, 50.0)));
  }

private:
  // Microseconds between two events around what `enqueue` puts on the stream.
  template <typename Enqueue> Result<double> timed(const Enqueue &enqueue) const {
    CLEAVE_RETURN_IF_ERROR(gpu.check(gpu.driver.eventRecord(begin, stream), "cannot record an event"));
    CLEAVE_RETURN_IF_ERROR(enqueue());
    CLEAVE_RETURN_IF_ERROR(gpu.check(gpu.driver.eventRecord(end, stream), "cannot record an event"));
    CLEAVE_RETURN_IF_ERROR(gpu.check(gpu.driver.streamSynchronize(stream), "the GPU stopped"));
    float milliseconds = 0;
    CLEAVE_RETURN_IF_ERROR(gpu.check(gpu.driver.eventElapsedTime(&milliseconds, begin, end), "cannot time"));
    return 1e3 * static_cast<double>(milliseconds);
  }

  template <typename Start> Result<double> timedGraph(const Start &start, int times) const {
    constexpr const char *what = "cannot time a matrix product in a graph";
    CLEAVE_RETURN_IF_ERROR(gpu.check(gpu.driver.streamBeginCapture(stream, captureRelaxed), what));
    Status started = start(times);
    Graph graph = nullptr;
    int error = gpu.driver.streamEndCapture(stream, &graph);
    GraphExec exec = nullptr;
    if (started && !error) error = gpu.driver.graphInstantiate(&exec, graph, 0);
    if (graph) gpu.driver.graphDestroy(graph);
    CLEAVE_RETURN_IF_ERROR(started);
    CLEAVE_RETURN_IF_ERROR(gpu.check(error, what));
    auto launch = [&] { return gpu.check(gpu.driver.graphLaunch(exec, stream), what); };
    constexpr int rounds = 4; // the first brings the graph to the GPU
    Result<double> least = timed(launch);
    for (int round = 1; round < rounds && least; ++round) {
      Result<double> taken = timed(launch);
      if (!taken || round == 1 || *taken < *least) least = std::move(taken);
    }
    gpu.driver.graphExecDestroy(exec);
    if (!least) return least;
    return *least / times;
  }

  std::pair<Places, Address> placesOf(const Product &product) const { // and how far they reach
    Address next = memory.address();
    auto place = [&](int64_t bytes, uint32_t alignment) {
      Address at = next + (alignment < 16 ? alignment : 0);
      next = (at + static_cast<Address>(std::max<int64_t>(bytes, 1)) + 255) / 256 * 256;
      return at;
    };
    auto matrix = [&](const ProductMatrix &m) { return place(m.bytes(product.batch), m.alignment); };
    Places at{};
    at.a = matrix(product.a), at.b = matrix(product.b), at.d = matrix(product.d);
    if (product.vector) at.vector = place(8 * std::max(product.d.rows, product.d.columns), product.vectorAlignment);
    if (product.auxLeading) at.aux = place(product.d.bytes(1), product.auxAlignment); // lies as the result
    at.workspace = place(productWorkspace, 16);
    return {at, next - memory.address()};
  }

  const Gpu &gpu;
  Stream stream = nullptr;
  CuEvent begin = nullptr, end = nullptr;
  DeviceMemory memory;
};

} // namespace

Result<std::map<std::string, Product>> productsOf(const plan::Plan &plan) {
  std::map<std::string, Product> products;
  for (const plan::Program &program : plan.programs())
    for (const plan::Fragment &fragment : program.fragments())
      for (const plan::Command &command : fragment.commands()) {
        if (!command.has_contract()) continue;
        Result<Product> product = productOf(command.contract(), plan.cuda().tf32());
        if (!product)
          return inputError(
              fmt::format("command '{}' of '{}': {}", command.name(), fragment.name(), product.status().message()));
        products.emplace(product->key(), std::move(*product));
      }
  return products;
}

Result<ProductChoices> chooseProducts(Gpu &gpu, const std::map<std::string, Product> &products,
                                      const ChooseOptions &options) {
  CLEAVE_RETURN_IF_ERROR(gpu.needBlas());
  auto tell = [&](const std::string &text) { return options.tell ? options.tell(text) : void(); };
  auto warn = [&](const std::string &text) { return options.warn ? options.warn(text) : void(); };
  auto start = std::chrono::steady_clock::now();
  std::string path = choicesPath(gpu.name, gpu.blas->version());
  ProductChoices known, chosen;
  if (Result<ProductChoices> read = path.empty() ? ProductChoices() : readChoices(path))
    known = std::move(*read);
  else
    warn(fmt::format("{}; algorithms of matrix products are timed again", read.status().message()));

  std::map<std::string, Product> unknown;
  std::set<std::string> refused; // of what was known
  Timer timer(gpu);
  for (const auto &[key, product] : products) {
    auto found = known.find(key);
    Places at = timer.places(product); // of no memory: what is asked here looks at their alignment only
    ProductDescription description;
    CLEAVE_RETURN_IF_ERROR(description.make(*gpu.blas, product, at.vector, at.aux));
    size_t workspaceBytes = 0;
    if (found != known.end() && description.accepts(gpu.blasHandle, found->second.algorithm, workspaceBytes)) {
      found->second.workspaceBytes = workspaceBytes;
      chosen.insert(*found);
      tell(fmt::format("{}: {:.1f} us, from {}", key, found->second.microseconds, path));
      continue;
    }
    if (found != known.end()) {
      refused.insert(key);
      warn(fmt::format("{}: cuBLASLt refuses what is stored for {}; it is timed again", path, key));
    }
    unknown.insert({key, product});
  }
  Status ready = unknown.empty() ? Status::ok() : timer.open(unknown);
  if (!ready) warn(fmt::format("{}; the first algorithm of cuBLASLt's heuristic is taken, untimed", ready.message()));
  for (const auto &[key, product] : unknown) {
    Places at = timer.places(product);
    ProductDescription description;
    CLEAVE_RETURN_IF_ERROR(description.make(*gpu.blas, product, at.vector, at.aux));
    CLEAVE_ASSIGN_OR_RETURN(std::vector<MatmulHeuristic> candidates,
                            description.algorithms(gpu.blasHandle, ready ? mostCandidates : 1));
    if (!ready) {
      if (!candidates.empty()) chosen[key] = {candidates.front().algorithm, candidates.front().workspaceBytes, 0};
      continue;
    }
    std::vector<std::pair<double, size_t>> times; // of those that run
    Status failed = Status::ok();                 // of the first that does not
    for (size_t i = 0; i < candidates.size(); ++i)
      if (Result<double> taken = timer.time(description, candidates[i], at))
        times.push_back({*taken, i});
      else if (failed)
        failed = taken.status();
    if (times.empty() && !candidates.empty()) {
      warn(fmt::format("{}: none of cuBLASLt's {} algorithms can be timed: {}; its first is taken", key,
                       candidates.size(), failed.message()));
      chosen[key] = {candidates.front().algorithm, candidates.front().workspaceBytes, 0};
    }
    if (times.empty()) continue; // said by the command that wants it
    auto best = times.begin();
    for (auto other = times.begin(); other != times.end(); ++other)
      if (other->first < worthwhile * best->first) best = other;
    const MatmulHeuristic &taken = candidates[best->second];
    chosen[key] = known[key] = {taken.algorithm, taken.workspaceBytes, best->first};
    tell(fmt::format("{}: {:.1f} us by algorithm {} of {}; {:.1f} us by the first", key, best->first, best->second + 1,
                     candidates.size(), times.front().first));
  }
  std::chrono::duration<double> passed = std::chrono::steady_clock::now() - start;
  tell(fmt::format("{} matrix products: {} timed in {:.1f} s, {} known from {}", products.size(),
                   ready ? unknown.size() : 0, passed.count(), products.size() - unknown.size(), path));
  if (ready && !unknown.empty() && !path.empty()) {
    // The choices that another run has written meanwhile stay, even for products that both timed: its later runs count
    // on them.
    if (Result<ProductChoices> others = readChoices(path))
      for (const auto &[key, choice] : *others)
        if (!refused.contains(key)) known.insert_or_assign(key, choice);
    if (Status written = writeChoices(path, known); !written)
      warn(fmt::format("{}; the next run times the algorithms of matrix products again", written.message()));
  }
  return chosen;
}

} // namespace cleave::runtime::cuda
