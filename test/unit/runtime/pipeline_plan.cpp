#include "test/unit/runtime/pipeline_plan.h"
#include "compiler/schedule/schedule.h"
#include "runtime/plan/dtype.h"
#include "runtime/train/state/weights.h"
#include "test/unit/runtime/describe_kernels.h"
#include <algorithm>
#include <cmath>
#include <fstream>
#include <iterator>
#include <map>
#include <random>
#include <stdexcept>

namespace cleave::runtime::test {
namespace {

using planner::ActionKind;

planner::PipelineSchedule tableOf(const PipelineShape &shape) {
  Result<planner::PipelineSchedule> table =
      planner::makeSchedule(shape.schedule, static_cast<int>(shape.ranks), shape.microbatches, {});
  if (!table) throw std::runtime_error(table.status().message());
  return std::move(*table);
}

enum class Kernel { Relu, ReluGradient, Mse, Sgd, Add };

// Builds the program of one pipeline rank.
class RankBuilder {
public:
  RankBuilder(const PipelineShape &shape, const planner::PipelineSchedule &table, int rank, plan::Plan &plan)
      : shape(shape), table(table), rank(rank), plan(plan), program(*plan.add_programs()),
        local(shape.rows / shape.dp) {
    plan::HostScalar &scalar = *program.add_host_scalars();
    scalar.set_kind(plan::HostScalar::LEARNING_RATE);
    *scalar.mutable_buffer() = lr = buffer({1});
    lossSum = buffer({1}), loss = buffer({1}), lossPart = buffer({1}), target = buffer({local, shape.width});
    scratch = buffer({local, shape.width});
    if (shape.offload) made = buffer({local, shape.width}), back = buffer({local, shape.width});
    for (int stage = 0; stage < table.stages; ++stage)
      if (table.rankOfStage[static_cast<size_t>(stage)] == rank) addStage(stage);
  }

  void build() {
    region.set_bytes(slotTop);
    region.set_offset(top);
    addRow();
    *program.add_slot_regions() = region;
    program.set_arena_bytes(top + slotTop * region.count());
    program.set_host_bytes(region.host_bytes() * region.count());
  }

private:
  struct Stage {
    plan::Buffer w, g, x, y, dy, dz, dx; // dy: of y; dz: of x w
    plan::Buffer away;                   // y in the host's memory
  };

  plan::Buffer buffer(std::vector<int64_t> sizes, bool inSlot = false) {
    plan::Buffer out;
    int64_t &end = inSlot ? slotTop : top;
    out.set_offset(end);
    out.set_dtype(plan::F32);
    for (int64_t size : sizes) out.add_shape(size);
    out.set_in_slot(inSlot);
    end += (byteSize(out) + 63) / 64 * 64;
    return out;
  }

  plan::Buffer parameter(const std::string &name, bool accumulator, uint64_t stream) {
    plan::Buffer place = buffer({shape.width, shape.width});
    plan::Parameter *found = nullptr;
    for (plan::Parameter &known : *plan.mutable_parameters())
      if (known.name() == name) found = &known;
    if (!found) {
      found = plan.add_parameters();
      found->set_name(name);
      found->set_dtype(plan::F32);
      for (int i = 0; i < 2; ++i) found->add_shape(shape.width), found->add_original_shape(shape.width);
      found->set_trainable(!accumulator);
      found->set_snapshot(!accumulator);
      if (accumulator) {
        found->set_role(plan::Parameter::ACCUMULATOR);
        found->set_fill(0);
      } else {
        found->mutable_random()->set_kind("normal");
        found->mutable_random()->set_std(std::sqrt(2.0 / static_cast<double>(shape.width)));
        found->mutable_random()->set_stream(stream);
      }
    }
    found->add_pp_coordinates(rank);
    found->add_offsets(place.offset());
    return place;
  }

  bool isLast(int stage) const { return stage + 1 == table.stages; }
  int rankOf(int stage) const { return table.rankOfStage[static_cast<size_t>(stage)]; }

  void addStage(int stage) {
    int weights = shape.tied ? 0 : stage;
    Stage &s = stages[stage];
    s.w = parameter("w." + std::to_string(weights), false, static_cast<uint64_t>(weights));
    s.g = parameter("g." + std::to_string(weights), true, 0);
    bool neighbour = stages.contains(stage - 1); // a V: the stage before lies here too
    std::vector<int64_t> sizes{local, shape.width};
    s.x = neighbour ? stages[stage - 1].y : buffer(sizes, true);
    s.y = shape.offload && !isLast(stage) ? made : buffer(sizes, true), s.dy = buffer(sizes, true);
    if (shape.offload && !isLast(stage)) {
      s.away = made;
      s.away.set_offset(region.host_bytes());
      s.away.set_in_slot(true), s.away.set_on_host(true);
      region.set_host_bytes(region.host_bytes() + byteSize(made));
    }
    s.dz = isLast(stage) ? s.dy : buffer(sizes, true);
    s.dx = neighbour ? stages[stage - 1].dy : buffer(sizes, true);
  }

  plan::Command &command(plan::Fragment &fragment, const std::string &name) {
    plan::Command &out = *fragment.add_commands();
    out.set_name(name);
    out.set_phase(fragment.name().substr(0, fragment.name().find_first_of("._")));
    return out;
  }
  void launch(plan::Fragment &fragment, const std::string &name, Kernel kernel, std::vector<plan::Buffer> buffers,
              std::vector<int64_t> scalars = {}, int64_t extent = 0) {
    plan::Launch &l = *command(fragment, name).mutable_launch();
    l.set_kernel(static_cast<int>(kernel));
    for (const plan::Buffer &one : buffers) *l.add_buffers() = one;
    for (int64_t scalar : scalars) l.add_scalars()->set_base(scalar);
    l.set_extent(extent ? extent : byteSize(buffers.back()) / 4);
    l.set_grain(4);
  }
  void contract(plan::Fragment &fragment, const std::string &name, const plan::Buffer &lhs,
                std::array<int64_t, 2> lhsStrides, const plan::Buffer &rhs, std::array<int64_t, 2> rhsStrides,
                const plan::Buffer &out, std::array<int64_t, 3> mnk, bool accumulate = false) {
    plan::Contract &c = *command(fragment, name).mutable_contract();
    *c.mutable_lhs() = lhs, *c.mutable_rhs() = rhs, *c.mutable_out() = out;
    c.set_m(mnk[0]), c.set_n(mnk[1]), c.set_k(mnk[2]);
    for (int64_t stride : lhsStrides) c.add_lhs_strides(stride);
    for (int64_t stride : rhsStrides) c.add_rhs_strides(stride);
    c.add_out_strides(mnk[1]), c.add_out_strides(1);
    c.set_accumulate(accumulate);
  }
  void transfer(plan::Fragment &fragment, const std::string &name, bool receives, int peer, const plan::Buffer &data,
                int tag, int waits, int records) {
    plan::Command &c = command(fragment, name);
    c.set_stream(receives ? 2 : 1);
    if (waits) c.add_wait_events(waits);
    c.set_record_event(records);
    plan::Transfer &t = *c.mutable_transfer();
    t.set_direction(receives ? plan::Transfer::RECEIVE : plan::Transfer::SEND);
    t.mutable_peer()->set_base(peer * shape.dp);
    auto &term = *t.mutable_peer()->add_terms();
    term.add_axes("dp");
    term.set_stride(1);
    *t.mutable_buffer() = data;
    t.set_tag(tag);
    t.set_channel(tag % 2); // activations and gradients
  }
  void copy(plan::Fragment &fragment, const std::string &name, int stream, const plan::Buffer &from,
            const plan::Buffer &to, int waits, int records) {
    plan::Command &c = command(fragment, name);
    c.set_stream(stream);
    if (waits) c.add_wait_events(waits);
    c.set_record_event(records);
    plan::Copy &moved = *c.mutable_copy();
    *moved.mutable_source() = from, *moved.mutable_target() = to;
    moved.add_sizes(byteSize(from) / 4), moved.add_source_strides(1), moved.add_target_strides(1);
  }
  void input(plan::Fragment &fragment, const std::string &name, const plan::Buffer &place) {
    plan::InputBinding &in = *fragment.add_inputs();
    in.set_name(name);
    in.set_label(name == "t");
    *in.mutable_buffer() = place;
    in.add_global_shape(shape.rows), in.add_global_shape(shape.width);
    in.add_dims()->add_axes("dp");
    in.add_dims();
  }

  plan::Fragment &fragment(const std::string &name) {
    plan::Fragment &out = *program.add_fragments();
    out.set_name(name);
    return out;
  }

  void forward(int stage) {
    const Stage &s = stages[stage];
    plan::Fragment &f = fragment("forward." + std::to_string(stage));
    int64_t w = shape.width;
    if (stage == 0)
      input(f, "x", s.x);
    else if (rankOf(stage - 1) != rank)
      transfer(f, "receive y" + std::to_string(stage - 1), true, rankOf(stage - 1), s.x, 2 * (stage - 1), 0, 1);
    contract(f, "fc" + std::to_string(stage), s.x, {w, 1}, s.w, {w, 1}, isLast(stage) ? s.y : scratch, {local, w, w});
    if (!f.commands().empty() && f.commands(0).has_transfer()) f.mutable_commands(1)->add_wait_events(1);
    if (isLast(stage)) {
      input(f, "t", target);
      launch(f, "loss", Kernel::Mse, {s.y, target, s.dy, lossPart}, {local * w, shape.microbatches * shape.rows * w},
             1);
      launch(f, "loss", Kernel::Add, {lossSum, lossPart, lossSum});
      return;
    }
    launch(f, "relu" + std::to_string(stage), Kernel::Relu, {scratch, s.y});
    if (rankOf(stage + 1) == rank) return;
    f.mutable_commands(f.commands_size() - 1)->set_record_event(2);
    transfer(f, "send y" + std::to_string(stage), false, rankOf(stage + 1), s.y, 2 * stage, 2, 3);
    if (shape.offload) copy(f, "evict y" + std::to_string(stage), 4, s.y, s.away, 2, 4);
  }

  // The parts of a backward pass that the action's kind has.
  void backward(int stage, ActionKind kind) {
    const Stage &s = stages[stage];
    const char *name = kind == ActionKind::Backward        ? "backward."
                       : kind == ActionKind::BackwardInput ? "backward_input."
                                                           : "backward_weight.";
    plan::Fragment &f = fragment(name + std::to_string(stage));
    int64_t w = shape.width;
    std::string layer = "fc" + std::to_string(stage);
    if (kind != ActionKind::BackwardWeight) {
      bool receives = !isLast(stage) && rankOf(stage + 1) != rank;
      if (receives)
        transfer(f, "receive dy" + std::to_string(stage), true, rankOf(stage + 1), s.dy, 2 * stage + 1, 0, 1);
      bool fetches = shape.offload && !isLast(stage);
      if (fetches) copy(f, "fetch y" + std::to_string(stage), 3, s.away, back, 0, 4);
      if (!isLast(stage)) {
        launch(f, "relu" + std::to_string(stage), Kernel::ReluGradient, {s.dy, fetches ? back : s.y, s.dz});
        plan::Command &relu = *f.mutable_commands(f.commands_size() - 1);
        if (receives) relu.add_wait_events(1);
        if (fetches) relu.add_wait_events(4);
      }
      if (stage > 0) {
        contract(f, layer, s.dz, {w, 1}, s.w, {1, w}, s.dx, {local, w, w});
        if (rankOf(stage - 1) != rank) {
          f.mutable_commands(f.commands_size() - 1)->set_record_event(2);
          transfer(f, "send dx" + std::to_string(stage), false, rankOf(stage - 1), s.dx, 2 * (stage - 1) + 1, 2, 3);
        }
      }
    }
    if (kind != ActionKind::BackwardInput) contract(f, layer, s.x, {1, w}, s.dz, {w, 1}, s.g, {w, w, local}, true);
  }

  void update() {
    plan::Fragment &f = fragment("update");
    std::map<std::string, int> sequences;
    auto sum = [&](const std::string &name, const plan::Buffer &data, std::vector<std::string> axes) {
      plan::Collective &c = *command(f, name).mutable_collective();
      std::string group;
      for (const std::string &axis : axes) c.add_axes(axis), group += axis;
      c.set_sequence(sequences[group]++);
      *c.add_inputs() = data, *c.add_outputs() = data;
      c.add_dims(-1);
    };
    plan::Copy &copy = *command(f, "loss").mutable_copy();
    *copy.mutable_source() = lossSum, *copy.mutable_target() = loss;
    copy.add_sizes(1), copy.add_source_strides(1), copy.add_target_strides(1);
    sum("loss", loss, {"pp", "dp"});
    for (auto &[stage, s] : stages) sum("gradient " + std::to_string(stage), s.g, {"dp"});
    if (shape.tied) sum("tied gradient", stages.begin()->second.g, {"pp"});
    plan::Command &check = command(f, "loss");
    *check.mutable_check_finite()->mutable_buffer() = loss;
    check.mutable_check_finite()->set_what("the loss");
    for (auto &[stage, s] : stages) launch(f, "sgd", Kernel::Sgd, {s.g, lr, s.w});
    std::vector<plan::Buffer> zeroed{lossSum};
    for (auto &[stage, s] : stages) zeroed.push_back(s.g);
    for (const plan::Buffer &one : zeroed) {
      plan::Fill &fill = *command(f, "zero").mutable_fill();
      *fill.mutable_target() = one;
      fill.set_value(std::string(4, '\0'));
    }
    plan::OutputBinding &output = *f.add_outputs();
    output.set_name("loss");
    *output.mutable_buffer() = loss;
  }

  // The table's row as actions; a microbatch has a slot from its first action here to its last.
  void addRow() {
    const auto &row = table.rows[static_cast<size_t>(rank)];
    std::map<std::pair<ActionKind, int>, int> fragments;
    std::map<int64_t, size_t> lastUse;
    for (size_t i = 0; i < row.size(); ++i) lastUse[row[i].microbatch] = i;
    plan::Routine step;
    step.set_name("step");
    std::map<int64_t, int32_t> slotOf;
    std::vector<int32_t> free;
    for (size_t i = 0; i < row.size(); ++i) {
      auto [kind, stage, microbatch] = row[i];
      auto [found, added] = fragments.try_emplace({kind, stage}, program.fragments_size());
      if (added && kind == ActionKind::Forward)
        forward(stage);
      else if (added)
        backward(stage, kind);
      if (!slotOf.contains(microbatch)) {
        if (free.empty()) free.push_back(region.count()), region.set_count(region.count() + 1);
        slotOf[microbatch] = free.back();
        free.pop_back();
      }
      plan::Action &action = *step.add_actions();
      action.set_fragment(found->second);
      action.set_microbatch(microbatch);
      action.set_slot(slotOf[microbatch]);
      if (lastUse[microbatch] == i) free.push_back(slotOf[microbatch]);
    }
    plan::Action &last = *step.add_actions();
    last.set_fragment(program.fragments_size());
    last.set_microbatch(shape.microbatches - 1);
    update();
    *program.add_routines() = step;
  }

  const PipelineShape &shape;
  const planner::PipelineSchedule &table;
  const int rank;
  plan::Plan &plan;
  plan::Program &program;
  const int64_t local;
  int64_t top = 0, slotTop = 0;
  plan::Buffer lr, lossSum, loss, lossPart, target, scratch, made,
      back; // made, back: y, before it leaves and when it has come back
  std::map<int, Stage> stages;
  plan::SlotRegion region;
};

} // namespace

int64_t stagesOf(const PipelineShape &shape) { return tableOf(shape).stages; }

plan::Plan pipelinePlan(const PipelineShape &shape) {
  plan::Plan plan;
  for (auto [name, size] : {std::pair{"pp", shape.ranks}, std::pair{"dp", shape.dp}}) {
    plan::MeshAxis &axis = *plan.mutable_mesh()->add_axes();
    axis.set_name(name);
    axis.set_size(size);
  }
  for (auto [symbol, buffers, scalars, outputs] :
       {std::tuple{"relu", 2, 0, 1}, std::tuple{"relu_gradient", 3, 0, 1}, std::tuple{"mse", 4, 2, 2},
        std::tuple{"sgd", 3, 0, 1}, std::tuple{"add", 3, 0, 1}}) {
    plan::Kernel &kernel = *plan.add_kernels();
    kernel.set_symbol(symbol);
    kernel.set_num_buffers(buffers), kernel.set_num_scalars(scalars), kernel.set_num_outputs(outputs);
  }
  planner::PipelineSchedule table = tableOf(shape);
  for (int rank = 0; rank < shape.ranks; ++rank) RankBuilder(shape, table, rank, plan).build();
  plan::Training &training = *plan.mutable_training();
  training.set_global_batch(shape.rows * shape.microbatches);
  training.set_microbatches(shape.microbatches);
  training.set_seed(3);
  training.mutable_lr()->set_kind("constant");
  training.mutable_lr()->set_peak(shape.lr);
  std::ifstream object(TEST_KERNELS, std::ios::binary);
  plan.set_kernel_object(std::string(std::istreambuf_iterator<char>(object), {}));
  plan.set_kernel_target("x86-64");
  describeKernels(plan);
  return plan;
}

PipelineData pipelineData(const PipelineShape &shape) {
  std::mt19937 engine(7);
  std::uniform_real_distribution<float> uniform(-1, 1);
  PipelineData data;
  for (std::vector<float> *array : {&data.x, &data.t}) {
    array->resize(static_cast<size_t>(shape.microbatches * shape.rows * shape.width));
    for (float &value : *array) value = uniform(engine);
  }
  return data;
}

std::vector<const std::byte *> PipelineData::pointers(const PipelineShape &shape) const {
  std::vector<const std::byte *> out;
  for (int64_t m = 0; m < shape.microbatches; ++m)
    for (const std::vector<float> *array : {&x, &t})
      out.push_back(reinterpret_cast<const std::byte *>(array->data() + m * shape.rows * shape.width));
  return out;
}

std::vector<double> pipelineLosses(const PipelineShape &shape, const plan::Plan &plan, const PipelineData &data,
                                   int steps) {
  auto stages = static_cast<size_t>(stagesOf(shape)), n = static_cast<size_t>(shape.width);
  std::vector<std::vector<double>> w(shape.tied ? 1 : stages);
  for (size_t s = 0; s < w.size(); ++s)
    for (const plan::Parameter &parameter : plan.parameters())
      if (parameter.name() == "w." + std::to_string(s))
        for (size_t i = 0; i < n * n; ++i)
          w[s].push_back(static_cast<float>(randomInitial(parameter.random(), plan.training().seed(), i)));
  std::vector<double> losses;
  for (int step = 0; step < steps; ++step) {
    std::vector<std::vector<double>> g(w.size(), std::vector<double>(n * n));
    double loss = 0;
    for (size_t row = 0; row < data.x.size() / n; ++row) {
      std::vector<std::vector<double>> values{{data.x.begin() + long(row * n), data.x.begin() + long(row * n + n)}};
      for (size_t s = 0; s < stages; ++s) {
        std::vector<double> y(n);
        for (size_t o = 0; o < n; ++o) {
          for (size_t i = 0; i < n; ++i) y[o] += values[s][i] * w[s % w.size()][i * n + o];
          if (s + 1 < stages) y[o] = std::max(y[o], 0.0);
        }
        values.push_back(y);
      }
      std::vector<double> d(n);
      for (size_t o = 0; o < n; ++o) {
        double e = values[stages][o] - data.t[row * n + o], count = static_cast<double>(data.x.size());
        loss += e * e / count;
        d[o] = 2 * e / count;
      }
      for (size_t s = stages; s-- > 0;) {
        std::vector<double> before(n);
        for (size_t o = 0; o < n; ++o) {
          if (s + 1 < stages && values[s + 1][o] <= 0) d[o] = 0;
          for (size_t i = 0; i < n; ++i) {
            g[s % w.size()][i * n + o] += values[s][i] * d[o];
            before[i] += d[o] * w[s % w.size()][i * n + o];
          }
        }
        d = before;
      }
    }
    for (size_t s = 0; s < w.size(); ++s)
      for (size_t i = 0; i < n * n; ++i) w[s][i] -= shape.lr * g[s][i];
    losses.push_back(loss);
  }
  return losses;
}

} // namespace cleave::runtime::test
