#include "test/unit/runtime/mlp_plan.h"
#include "runtime/plan/dtype.h"
#include "test/unit/runtime/describe_kernels.h"
#include <fstream>
#include <iterator>
#include <random>

namespace cleave::runtime::test {
namespace {

class Builder {
public:
  plan::Plan plan;
  int64_t top = 0;

  plan::Buffer buffer(std::vector<int64_t> shape, plan::DType dtype = plan::F32) {
    plan::Buffer out;
    out.set_offset(top);
    out.set_dtype(dtype);
    for (int64_t size : shape) out.add_shape(size);
    top += (byteSize(out) + 63) / 64 * 64;
    return out;
  }
  plan::Buffer parameter(const std::string &name, std::vector<int64_t> shape, std::vector<std::string> dims,
                         std::vector<int64_t> local) {
    plan::Buffer place = buffer(local);
    plan::Parameter &parameter = *plan.add_parameters();
    parameter.set_name(name);
    parameter.set_dtype(plan::F32);
    for (int64_t size : shape) parameter.add_shape(size), parameter.add_original_shape(size);
    for (const std::string &axis : dims) {
      plan::DimSharding &dim = *parameter.add_dims();
      if (!axis.empty()) dim.add_axes(axis);
    }
    parameter.set_trainable(true);
    parameter.set_snapshot(true);
    parameter.set_offset(place.offset());
    return place;
  }
  int32_t kernel(const std::string &symbol, int64_t buffers, int64_t scalars, int64_t outputs) {
    plan::Kernel &kernel = *plan.add_kernels();
    kernel.set_symbol(symbol);
    kernel.set_num_buffers(buffers);
    kernel.set_num_scalars(scalars);
    kernel.set_num_outputs(outputs);
    return plan.kernels_size() - 1;
  }
};

plan::Command &command(plan::Fragment &fragment, const std::string &name, const std::string &phase) {
  plan::Command &out = *fragment.add_commands();
  out.set_name(name);
  out.set_phase(phase);
  return out;
}

// out[m, n] = lhs[m, k] rhs[k, n], each by its two strides
void contract(plan::Command &command, const plan::Buffer &lhs, std::pair<int64_t, int64_t> ls, const plan::Buffer &rhs,
              std::pair<int64_t, int64_t> rs, const plan::Buffer &out, int64_t m, int64_t n, int64_t k) {
  plan::Contract &c = *command.mutable_contract();
  *c.mutable_lhs() = lhs, *c.mutable_rhs() = rhs, *c.mutable_out() = out;
  c.set_m(m), c.set_n(n), c.set_k(k);
  c.add_lhs_strides(ls.first), c.add_lhs_strides(ls.second), c.add_rhs_strides(rs.first), c.add_rhs_strides(rs.second);
  c.add_out_strides(n), c.add_out_strides(1);
}

plan::Launch &launch(plan::Command &command, int32_t kernel, std::vector<plan::Buffer> buffers, int64_t extent,
                     std::vector<int64_t> scalars = {}) {
  plan::Launch &l = *command.mutable_launch();
  l.set_kernel(kernel);
  for (const plan::Buffer &buffer : buffers) *l.add_buffers() = buffer;
  for (int64_t scalar : scalars) l.add_scalars()->set_base(scalar);
  l.set_extent(extent);
  l.set_grain(4);
  return l;
}

} // namespace

plan::Plan mlpPlan(const MlpShape &s) {
  Builder b;
  for (auto [name, size] : {std::pair{"dp", s.dp}, std::pair{"tp", s.tp}}) {
    plan::MeshAxis &axis = *b.plan.mutable_mesh()->add_axes();
    axis.set_name(name);
    axis.set_size(size);
  }
  int64_t rows = s.batch / s.dp, hidden = s.hidden / s.tp;
  plan::Buffer w1 = b.parameter("w1", {s.in, s.hidden}, {"", "tp"}, {s.in, hidden});
  plan::Buffer b1 = b.parameter("b1", {s.hidden}, {"tp"}, {hidden});
  plan::Buffer w2 = b.parameter("w2", {s.hidden, s.out}, {"tp", ""}, {hidden, s.out});
  plan::Program &program = *b.plan.add_programs();
  plan::HostScalar &lr = *program.add_host_scalars();
  lr.set_kind(plan::HostScalar::LEARNING_RATE);
  *lr.mutable_buffer() = b.buffer({1});
  program.set_persistent_bytes(b.top);
  plan::Buffer x = b.buffer({rows, s.in}), t = b.buffer({rows, s.out}), h = b.buffer({rows, hidden}),
               a = b.buffer({rows, hidden});
  plan::Buffer y = b.buffer({rows, s.out}), dy = b.buffer({rows, s.out}), loss = b.buffer({1}),
               da = b.buffer({rows, hidden}), dh = b.buffer({rows, hidden});
  plan::Buffer g1 = b.buffer({s.in, hidden}), gb = b.buffer({hidden}), g2 = b.buffer({hidden, s.out});

  plan::Fragment &f = *program.add_fragments();
  f.set_name("final");
  for (auto [name, buffer, width] : {std::tuple{"x", x, s.in}, std::tuple{"t", t, s.out}}) {
    plan::InputBinding &input = *f.add_inputs();
    input.set_name(name);
    *input.mutable_buffer() = buffer;
    input.add_global_shape(s.batch), input.add_global_shape(width);
    input.add_dims()->add_axes("dp");
    input.add_dims();
    input.set_label(std::string(name) == "t");
  }
  int32_t relu = b.kernel("relu", 2, 0, 1), reluGradient = b.kernel("relu_gradient", 3, 0, 1),
          mse = b.kernel("mse", 4, 2, 2);
  int32_t sgd = b.kernel("sgd", 3, 0, 1), columnSum = b.kernel("column_sum", 2, 2, 1);

  plan::Command &first = command(f, "fc1", "forward");
  contract(first, x, {s.in, 1}, w1, {hidden, 1}, h, rows, hidden, s.in);
  *first.mutable_contract()->mutable_bias() = b1;
  launch(command(f, "relu", "forward"), relu, {h, a}, rows * hidden);
  contract(command(f, "fc2", "forward"), a, {hidden, 1}, w2, {s.out, 1}, y, rows, s.out, hidden);
  auto collective = [&](const std::string &name, std::vector<plan::Buffer> buffers, const std::string &axis,
                        int sequence) -> plan::Command & {
    plan::Command &out = command(f, name, "backward");
    plan::Collective &c = *out.mutable_collective();
    c.add_axes(axis);
    c.set_sequence(sequence);
    for (const plan::Buffer &buffer : buffers) *c.add_inputs() = buffer, *c.add_outputs() = buffer, c.add_dims(-1);
    return out;
  };
  collective("fc2", {y}, "tp", 0);
  launch(command(f, "loss", "forward"), mse, {y, t, dy, loss}, 1, {rows * s.out, s.batch * s.out});
  contract(command(f, "fc2", "backward"), a, {1, hidden}, dy, {s.out, 1}, g2, hidden, s.out, rows);
  contract(command(f, "fc2", "backward"), dy, {s.out, 1}, w2, {1, s.out}, da, rows, hidden, s.out);
  launch(command(f, "relu", "backward"), reluGradient, {da, a, dh}, rows * hidden);
  contract(command(f, "fc1", "backward"), x, {1, s.in}, dh, {hidden, 1}, g1, s.in, hidden, rows);
  plan::Command &sum = command(f, "fc1", "backward");
  launch(sum, columnSum, {dh, gb}, hidden, {rows, hidden});
  sum.set_record_event(1);
  plan::Command &bucket = collective("gradients", {g2, g1, gb, loss}, "dp", 0);
  if (s.asynchronous) bucket.set_stream(1);
  bucket.add_wait_events(1);
  bucket.set_record_event(2);
  plan::Command &check = command(f, "loss", "update");
  check.add_wait_events(2);
  *check.mutable_check_finite()->mutable_buffer() = loss;
  check.mutable_check_finite()->set_what("the loss");
  for (auto [w, g] : {std::pair{w1, g1}, std::pair{b1, gb}, std::pair{w2, g2}})
    launch(command(f, "sgd", "update"), sgd, {g, lr.buffer(), w}, byteSize(w) / 4);
  plan::OutputBinding &output = *f.add_outputs();
  output.set_name("loss");
  *output.mutable_buffer() = loss;
  plan::Routine &step = *program.add_routines();
  step.set_name("step");
  step.add_actions();
  program.set_arena_bytes(b.top);
  b.plan.mutable_training()->set_global_batch(s.batch);
  b.plan.mutable_training()->set_microbatches(1);
  b.plan.mutable_training()->mutable_lr()->set_kind("constant");
  b.plan.mutable_training()->mutable_lr()->set_peak(s.lr);
  std::ifstream object(TEST_KERNELS, std::ios::binary);
  b.plan.set_kernel_object(std::string(std::istreambuf_iterator<char>(object), {}));
  b.plan.set_kernel_target("x86-64");
  describeKernels(b.plan);
  return b.plan;
}

MlpData mlpData(const MlpShape &s) {
  std::mt19937 engine(7);
  std::uniform_real_distribution<float> uniform(-0.5f, 0.5f);
  auto make = [&](int64_t count) {
    std::vector<float> out(static_cast<size_t>(count));
    for (float &value : out) value = uniform(engine);
    return out;
  };
  MlpData d;
  d.w1 = make(s.in * s.hidden), d.b1 = make(s.hidden), d.w2 = make(s.hidden * s.out), d.x = make(s.batch * s.in),
  d.t = make(s.batch * s.out);
  return d;
}

std::vector<double> mlpLosses(const MlpShape &s, MlpData data, int steps) {
  std::vector<double> w1(data.w1.begin(), data.w1.end()), b1(data.b1.begin(), data.b1.end()),
      w2(data.w2.begin(), data.w2.end()), losses;
  for (int step = 0; step < steps; ++step) {
    std::vector<double> g1(w1.size()), gb(b1.size()), g2(w2.size());
    double loss = 0;
    for (int64_t r = 0; r < s.batch; ++r) {
      std::vector<double> a(s.hidden), dy(s.out);
      for (int64_t j = 0; j < s.hidden; ++j) {
        double sum = b1[j];
        for (int64_t i = 0; i < s.in; ++i) sum += data.x[r * s.in + i] * w1[i * s.hidden + j];
        a[j] = std::max(sum, 0.0);
      }
      for (int64_t o = 0; o < s.out; ++o) {
        double sum = 0;
        for (int64_t j = 0; j < s.hidden; ++j) sum += a[j] * w2[j * s.out + o];
        double d = sum - data.t[r * s.out + o];
        loss += d * d / static_cast<double>(s.batch * s.out);
        dy[o] = 2 * d / static_cast<double>(s.batch * s.out);
      }
      for (int64_t j = 0; j < s.hidden; ++j) {
        double da = 0;
        for (int64_t o = 0; o < s.out; ++o) da += dy[o] * w2[j * s.out + o], g2[j * s.out + o] += a[j] * dy[o];
        if (a[j] <= 0) continue;
        gb[j] += da;
        for (int64_t i = 0; i < s.in; ++i) g1[i * s.hidden + j] += data.x[r * s.in + i] * da;
      }
    }
    for (size_t i = 0; i < w1.size(); ++i) w1[i] -= s.lr * g1[i];
    for (size_t i = 0; i < b1.size(); ++i) b1[i] -= s.lr * gb[i];
    for (size_t i = 0; i < w2.size(); ++i) w2[i] -= s.lr * g2[i];
    losses.push_back(loss);
  }
  return losses;
}

} // namespace cleave::runtime::test
