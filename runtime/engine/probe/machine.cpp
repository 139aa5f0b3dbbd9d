#include "runtime/engine/probe/machine.h"
#include "runtime/base/control_groups.h"
#include "runtime/base/cpu_features.h"
#include "runtime/base/threads/thread_count.h"
#include "runtime/engine/executor/executor.h"
#include "runtime/engine/probe/trial_plan.h"
#include <algorithm>
#include <array>
#include <fmt/format.h>
#include <unistd.h>

namespace cleave::runtime {
namespace {

using Axes = std::vector<std::pair<std::string, int64_t>>;

// How often a command that takes about `seconds` is repeated so that a step takes some milliseconds.
int repeatsFor(double seconds) { return static_cast<int>(std::clamp(3e-3 / std::max(seconds, 1e-9), 1.0, 4000.0)); }

class Measurement {
public:
  Measurement(const MachineProbe &probe, MachineFigures &figures) : probe(probe), figures(figures) {}

  Status overheads() {
    auto step = TrialPlan(all());
    plan::Buffer byte = step.buffer(plan::BOOL, {1});
    step.fill(byte);
    CLEAVE_RETURN_IF_ERROR(store(step.time(figures.threads), figures.emptyStepSeconds));

    CLEAVE_RETURN_IF_ERROR(kernel(int64_t(figures.threads) << 14, figures.kernelSeconds)); // one grain of Fill a thread
    CLEAVE_RETURN_IF_ERROR(kernel(1, figures.soloSeconds));
    probe.say(fmt::format("overheads        empty step {:.1f} us, kernel {:.2f} us, on one thread {:.2f} us",
                          1e6 * figures.emptyStepSeconds, 1e6 * figures.kernelSeconds, 1e6 * figures.soloSeconds));
    return Status::ok();
  }

  // From small to large, few and many samples, layers that widen and narrow.
  Status layers() {
    for (auto [samples, in, out] : std::initializer_list<std::array<int64_t, 3>>{{16, 32, 32},
                                                                                 {128, 32, 128},
                                                                                 {16, 64, 64},
                                                                                 {64, 64, 64},
                                                                                 {256, 64, 64},
                                                                                 {2048, 64, 64},
                                                                                 {64, 64, 256},
                                                                                 {512, 256, 64},
                                                                                 {64, 128, 128},
                                                                                 {256, 128, 512},
                                                                                 {2048, 16, 512},
                                                                                 {64, 256, 256},
                                                                                 {512, 256, 256},
                                                                                 {16, 512, 512},
                                                                                 {256, 512, 512},
                                                                                 {32, 1024, 1024},
                                                                                 {512, 1024, 1024}}) {
      double flops = 6.0 * double(samples) * double(in) * double(out);
      LayerFigure figure{samples, in, out, 0, 0};
      int repeats = repeatsFor(flops / 5e10);
      for (bool isWhole : {false, true}) {
        TrialPlan trial(all());
        plan::Buffer x = trial.buffer(plan::F32, {samples, in}), y = trial.buffer(plan::F32, {samples, out}),
                     weights = trial.buffer(plan::F32, {in, out}), gradient = trial.buffer(plan::F32, {in, out});
        for (int i = 0; i < repeats; ++i) {
          trial.product(x, weights, y, {}, samples, out, in, {{in, 1}, {out, 1}, {out, 1}});
          if (isWhole) trial.product(x, y, gradient, {}, in, out, samples, {{1, in}, {out, 1}, {out, 1}});
          trial.product(y, weights, x, {}, samples, in, out, {{out, 1}, {1, out}, {in, 1}});
        }
        CLEAVE_RETURN_IF_ERROR(each(trial, repeats, isWhole ? figure.seconds : figure.rowSeconds));
      }
      figures.layers.push_back(figure);
      probe.say(fmt::format("layer            [{}, {}] [{}, {}] and gradients: {:.1f} GFLOP/s a device, {:.1f} without "
                            "the weights'",
                            samples, in, in, out, flops / figure.seconds / 1e9, flops / 1.5 / figure.rowSeconds / 1e9));
    }
    return Status::ok();
  }

  // Fewer channels than a vector has numbers, as many and more; large images and small ones.
  Status convolutions() {
    using Pass = plan::Convolution;
    for (auto [samples, in, out, side, kernel] : std::initializer_list<std::array<int64_t, 5>>{{32, 3, 16, 32, 3},
                                                                                               {32, 8, 8, 32, 3},
                                                                                               {32, 16, 16, 8, 3},
                                                                                               {32, 16, 16, 16, 3},
                                                                                               {8, 32, 32, 16, 3},
                                                                                               {8, 64, 256, 14, 1},
                                                                                               {1, 64, 64, 28, 3},
                                                                                               {4, 128, 128, 14, 3}}) {
      ConvolutionFigure figure{samples, in, out, side, kernel};
      const double flops = 2 * double(samples * in * out) * double(side * side) * double(kernel * kernel);
      for (auto [pass, seconds] : {std::pair{Pass::FORWARD, &figure.forward},
                                   {Pass::GRAD_INPUT, &figure.gradInput},
                                   {Pass::GRAD_WEIGHT, &figure.gradWeight}}) {
        TrialPlan trial(all());
        plan::Buffer x = trial.buffer(plan::F32, {samples, in, side, side}),
                     y = trial.buffer(plan::F32, {samples, out, side, side}),
                     weights = trial.buffer(plan::F32, {out, in, kernel, kernel});
        const int repeats = repeatsFor(flops / 1e11);
        for (int i = 0; i < repeats; ++i) trial.convolution(pass, x, weights, y);
        CLEAVE_RETURN_IF_ERROR(each(trial, repeats, *seconds));
      }
      figures.convolutions.push_back(figure);
      probe.say(fmt::format("convolution      {} x [{}, {}, {}] to {} channels by {} x {}: {:.1f} GFLOP/s a device, of "
                            "gradients {:.1f} and {:.1f}",
                            samples, in, side, side, out, kernel, kernel, flops / figure.forward / 1e9,
                            flops / figure.gradInput / 1e9, flops / figure.gradWeight / 1e9));
    }
    return Status::ok();
  }

  // Products of attention: samples and heads are batches, a row's heads lie beside each other. Scores, their sums over
  // values, and the gradients of both.
  Status attention() {
    for (auto [samples, positions, heads, size] :
         std::initializer_list<std::array<int64_t, 4>>{{8, 64, 4, 16}, {4, 128, 4, 32}, {32, 16, 4, 16}}) {
      int64_t row = heads * size, square = positions * positions;
      std::vector<int64_t> rows{positions * row, size, row, 1}, turned{positions * row, size, 1, row},
          scores{heads * square, square, positions, 1}, turnedScores{heads * square, square, 1, positions};
      struct Form {
        int64_t n, k;
        TrialPlan::Strides strides;
      };
      for (const Form &form :
           {Form{positions, size, {rows, turned, scores}}, Form{size, positions, {scores, rows, rows}},
            Form{size, positions, {turnedScores, rows, rows}}}) {
        TrialPlan trial(all());
        plan::Buffer a = trial.buffer(plan::F32, {samples, positions, row}),
                     b = trial.buffer(plan::F32, {samples, positions, row}),
                     c = trial.buffer(plan::F32, {samples, heads, positions, positions});
        bool makesScores = form.n == positions && form.strides.out == scores;
        double flops = 2.0 * double(samples * heads) * double(square) * double(size), seconds = 0;
        int repeats = repeatsFor(flops / 3e10);
        for (int i = 0; i < repeats; ++i)
          trial.product(makesScores ? a : c, b, makesScores ? c : a, {samples, heads}, positions, form.n, form.k,
                        form.strides);
        CLEAVE_RETURN_IF_ERROR(each(trial, repeats, seconds));
        figures.products.push_back({samples * heads, positions, form.n, form.k, flops / seconds, true});
        probe.say(fmt::format("attention        {:>3} x [{}, {}] [{}, {}]: {:.1f} GFLOP/s a device", samples * heads,
                              positions, form.k, form.k, form.n, flops / seconds / 1e9));
      }
    }
    return Status::ok();
  }

  // Few rows for each of some experts, by that one's weights.
  Status experts() {
    for (auto [experts, rows, in, out] :
         std::initializer_list<std::array<int64_t, 4>>{{4, 24, 16, 32}, {8, 32, 64, 64}}) {
      TrialPlan trial(all());
      plan::Buffer x = trial.buffer(plan::F32, {experts, rows, in}), y = trial.buffer(plan::F32, {experts, rows, out}),
                   weights = trial.buffer(plan::F32, {experts, in, out});
      const double flops = 2 * double(experts * rows * in * out);
      const int repeats = repeatsFor(flops / 1e10);
      for (int i = 0; i < repeats; ++i)
        trial.product(x, weights, y, {experts}, rows, out, in,
                      {{rows * in, in, 1}, {in * out, out, 1}, {rows * out, out, 1}});
      double seconds = 0;
      CLEAVE_RETURN_IF_ERROR(each(trial, repeats, seconds));
      figures.products.push_back({experts, rows, out, in, flops / seconds, false, false, true});
      probe.say(fmt::format("experts          {:>3} x [{}, {}] [{}, {}]: {:.1f} GFLOP/s a device", experts, rows, in,
                            in, out, flops / seconds / 1e9));
    }
    return Status::ok();
  }

  // Few samples through large layers, whose weights [out, in] come from memory: forward, the gradient of its input,
  // and of its weights.
  Status streamingProducts() {
    constexpr int64_t few = 16, size = 4096;
    struct Form {
      int64_t m, n, k;
      TrialPlan::Strides strides;
    };
    for (const Form &form : {Form{few, size, size, {{size, 1}, {1, size}, {size, 1}}},
                             Form{few, size, size, {{size, 1}, {size, 1}, {size, 1}}},
                             Form{size, size, few, {{1, size}, {size, 1}, {size, 1}}}}) {
      TrialPlan trial(all());
      bool makesWeights = form.k == few;
      plan::Buffer a = trial.buffer(plan::F32, {few, size}), b = trial.buffer(plan::F32, {few, size});
      const int64_t layers = std::max<int64_t>(1, farBytes(figures.devices) / (4 * size * size));
      for (int64_t layer = 0; layer < layers; ++layer) {
        plan::Buffer weights = trial.buffer(plan::F32, {size, size});
        trial.product(a, makesWeights ? b : weights, makesWeights ? weights : b, {}, form.m, form.n, form.k,
                      form.strides);
      }
      double seconds = 0, bytes = 4.0 * (2 * few * size + size * size);
      CLEAVE_RETURN_IF_ERROR(each(trial, static_cast<int>(layers), seconds));
      figures.products.push_back({1, form.m, form.n, form.k, 2.0 * few * size * size / seconds, false, true});
      probe.say(fmt::format("product          from memory, [{}, {}] [{}, {}]: {:.1f} GB/s a device", form.m, form.k,
                            form.k, form.n, bytes / seconds / 1e9));
    }
    return Status::ok();
  }

  Status kernels() {
    for (const KernelTrial &kernel : probe.kernels) {
      int repeats = repeatsFor(kernel.elements * 0.2e-9 * kernel.commands);
      TrialPlan trial(*kernel.plan, repeats);
      KernelFigure figure{kernel, 0};
      CLEAVE_RETURN_IF_ERROR(each(trial, repeats, figure.seconds));
      probe.say(kernel.work == KernelTrial::step
                    ? fmt::format("step             of {} commands, {:>5.0f} elements each: {:.1f} us", kernel.commands,
                                  kernel.elements, 1e6 * figure.seconds)
                : kernel.work == KernelTrial::update
                    ? fmt::format("kernel           {:>10}: {:.1f} GB/s a device", kernel.work,
                                  kernel.bytes / figure.seconds / 1e9)
                    : fmt::format("kernel           {:>10}: {:.1f} ps an element and operation", kernel.work,
                                  1e12 * figure.seconds / kernel.elements));
      figures.kernels.push_back(figure);
    }
    return Status::ok();
  }

  Status streams() {
    for (int shift : {18, 20, 22, 23, 24, 25, 26, 27, 28, 29}) {
      const int64_t bytes = int64_t(1) << shift;
      if (bytes > farBytes(figures.devices)) break;
      StreamFigure figure{bytes, 0, 0};
      CLEAVE_RETURN_IF_ERROR(stream(all(), bytes, figure.together));
      figure.alone = figure.together;
      if (figures.devices > 1) CLEAVE_RETURN_IF_ERROR(stream({{"dp", 1}}, bytes, figure.alone));
      figures.streams.push_back(figure);
      probe.say(fmt::format("copy             {:>6} KiB: {:.1f} GB/s a device with all active, {:.1f} alone",
                            bytes >> 10, figure.together / 1e9, figure.alone / 1e9));
    }
    return Status::ok();
  }

  // Others on the machine use its caches too: what is not touched for a while may have to come from memory.
  Status returns() {
    constexpr int64_t half = int64_t(1) << 21, edge = 64; // bytes; of the products between
    for (double wanted : {0.5e-3, 2e-3}) {
      const int products = int(wanted / (2 * double(edge * edge * edge) / 1e11)), repeats = int(16e-3 / wanted);
      TrialPlan trial(all());
      plan::Buffer source = trial.buffer(plan::F32, {half / 4}), target = trial.buffer(plan::F32, {half / 4}),
                   a = trial.buffer(plan::F32, {edge, edge}), b = trial.buffer(plan::F32, {edge, edge}),
                   c = trial.buffer(plan::F32, {edge, edge});
      for (int i = 0; i < repeats; ++i) {
        trial.copy(source, target);
        for (int p = 0; p < products; ++p)
          trial.product(a, b, c, {}, edge, edge, edge, {{edge, 1}, {edge, 1}, {edge, 1}});
      }
      CLEAVE_ASSIGN_OR_RETURN(TrialPlan::Copies copies, trial.timeCopies(figures.threads));
      ReturnFigure figure{2 * half, copies.pause, copies.seconds};
      figures.returns.push_back(figure);
      probe.say(fmt::format("copy             {:>6} KiB, {:.2f} ms after the last: {:.1f} us", figure.bytes >> 10,
                            1e3 * figure.pause, 1e6 * figure.seconds));
    }
    return Status::ok();
  }

  Status collectives() {
    if (figures.devices == 1) return Status::ok();
    std::vector<int64_t> groups{figures.devices}; // all together, and 2, 4, ... where they divide
    for (int64_t members = 2; members < figures.devices; members *= 2)
      if (figures.devices % members == 0) groups.push_back(members);
    for (int64_t members : groups)
      for (auto op : {plan::Collective::ALL_REDUCE, plan::Collective::REDUCE_SCATTER, plan::Collective::ALL_GATHER,
                      plan::Collective::ALL_TO_ALL})
        // A line of the cache or two, which is all that the sums of a step are: the start; then more.
        for (int64_t bytes :
             {int64_t(64), int64_t(1) << 14, int64_t(1) << 16, int64_t(1) << 20, int64_t(1) << 22, int64_t(1) << 26}) {
          const int64_t least = 4 * members * members; // an element from each to each
          if (bytes >= least || bytes == 64)
            CLEAVE_RETURN_IF_ERROR(
                collective(op, members, (bytes + least - 1) / least * least, bytes >= int64_t(1) << 26));
        }
    return Status::ok();
  }

private:
  Axes all() const { return {{"dp", figures.devices}}; }

  static Status store(const Result<double> &measured, double &value) {
    if (!measured) return measured.status();
    value = *measured;
    return Status::ok();
  }
  // Seconds of one of `repeats` equal parts of a step.
  Status each(TrialPlan &trial, int repeats, double &value) {
    CLEAVE_RETURN_IF_ERROR(store(trial.time(figures.threads), value));
    value = std::max(value - figures.emptyStepSeconds, 0.1 * value) / repeats;
    return Status::ok();
  }

  // One that does nothing with so many bytes.
  Status kernel(int64_t bytes, double &seconds) {
    constexpr int repeats = 2000;
    TrialPlan trial(all());
    plan::Buffer target = trial.buffer(plan::BOOL, {bytes});
    for (int i = 0; i < repeats; ++i) trial.fill(target);
    return each(trial, repeats, seconds);
  }

  Status stream(const Axes &axes, int64_t bytes, double &rate) {
    TrialPlan trial(axes);
    int64_t half = bytes / 2;
    plan::Buffer source = trial.buffer(plan::F32, {half / 4}), target = trial.buffer(plan::F32, {half / 4});
    int repeats = repeatsFor(double(bytes) / 2e10);
    for (int i = 0; i < repeats; ++i) trial.copy(source, target);
    double seconds = 0;
    CLEAVE_RETURN_IF_ERROR(each(trial, repeats, seconds));
    rate = double(bytes) / seconds;
    return Status::ok();
  }

  // The time that a compiled step waits for a collective: each device writes its operand, so that it lies in that
  // device's cache, then the collective, then the same again; less the time of writing alone. `bytes`
  // are a multiple of 4 members², so that each sends each as much. `isFar`: each works on other bytes than the ones
  // before, so that none of them are in a cache, and nothing writes them.
  Status collective(plan::Collective::Op op, int64_t members, int64_t bytes, bool isFar) {
    const int64_t columns = bytes / 4 / members;
    const std::vector<int64_t> whole{members, columns}, part{1, columns}, turned{members, columns / members};
    using Op = plan::Collective;
    const bool readsPart = op == Op::ALL_GATHER || op == Op::ALL_TO_ALL;
    const int64_t places = isFar ? std::max<int64_t>(1, farBytes(figures.devices) / (2 * bytes)) : 1;
    const int repeats = isFar ? 2 * int(places) : std::min(300, repeatsFor(double(bytes) / 5e9));
    double with = 0, without = 0;
    for (bool isExchanged : {false, true}) {
      TrialPlan trial({{"dp", figures.devices / members}, {"tp", members}});
      plan::Buffer byte = trial.buffer(plan::BOOL, {1});
      std::vector<std::pair<plan::Buffer, plan::Buffer>> operands;
      for (int64_t place = 0; place < places; ++place)
        operands.emplace_back(trial.buffer(plan::F32, readsPart ? part : whole),
                              trial.buffer(plan::F32, op == Op::REDUCE_SCATTER ? part
                                                      : op == Op::ALL_TO_ALL   ? turned
                                                                               : whole));
      for (int i = 0; i < repeats; ++i) {
        const auto &[input, output] = operands[size_t(i) % operands.size()];
        trial.fill(isFar ? byte : input);
        if (isExchanged) trial.collective(op, "tp", input, output);
      }
      trial.fill(byte);
      CLEAVE_RETURN_IF_ERROR(each(trial, repeats, isExchanged ? with : without));
    }
    CollectiveFigure figure;
    figure.op = plan::Collective::Op_Name(op);
    std::transform(figure.op.begin(), figure.op.end(), figure.op.begin(),
                   [](unsigned char c) { return std::tolower(c); });
    figure.members = members;
    figure.isFar = isFar;
    figure.bytes = bytes;
    figure.seconds = std::max(with - without, 0.1 * with);
    probe.say(fmt::format("{:16} {} devices, {:>7.4g} KiB{}: {:.2f} us", figure.op, members,
                          double(figure.bytes) / 1024, isFar ? " in memory" : "", 1e6 * figure.seconds));
    figures.collectives.push_back(std::move(figure));
    return Status::ok();
  }

  const MachineProbe &probe;
  MachineFigures &figures;
};

// The part of it that this process may use.
int64_t memoryOfMachine() {
  return std::min<int64_t>(::sysconf(_SC_PHYS_PAGES) * ::sysconf(_SC_PAGE_SIZE), memoryLimit());
}

} // namespace

// The last caches that processors have today hold some hundred MiB together.
int64_t farBytes(int64_t devices) {
  constexpr int64_t least = int64_t(64) << 20, together = int64_t(1) << 29;
  return std::min(std::max(least, together / devices), memoryOfMachine() / 8 / devices);
}

Result<MachineFigures> MachineProbe::measure() const {
  MachineFigures figures;
  figures.devices = devices;
  figures.cores = availableCores();
  figures.cpu = cpuLevel() > 1 ? fmt::format("x86-64-v{}", cpuLevel()) : "x86-64";
  figures.threads = static_cast<int>(std::max<int64_t>(1, figures.cores / devices)); // as the executor gives them
  figures.memoryBytes = double(memoryOfMachine());
  say(fmt::format("{} virtual device{} of {} thread{} on {} cores", devices, devices == 1 ? "" : "s", figures.threads,
                  figures.threads == 1 ? "" : "s", figures.cores));
  Measurement measurement(*this, figures);
  CLEAVE_RETURN_IF_ERROR(measurement.overheads());
  CLEAVE_RETURN_IF_ERROR(measurement.layers());
  CLEAVE_RETURN_IF_ERROR(measurement.convolutions());
  CLEAVE_RETURN_IF_ERROR(measurement.attention());
  CLEAVE_RETURN_IF_ERROR(measurement.experts());
  CLEAVE_RETURN_IF_ERROR(measurement.streamingProducts());
  CLEAVE_RETURN_IF_ERROR(measurement.kernels());
  CLEAVE_RETURN_IF_ERROR(measurement.streams());
  CLEAVE_RETURN_IF_ERROR(measurement.returns());
  CLEAVE_RETURN_IF_ERROR(measurement.collectives());
  return figures;
}

} // namespace cleave::runtime
