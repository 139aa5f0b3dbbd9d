#include "runtime/plan/coordinate.h"
#include "runtime/plan/dtype.h"
#include "runtime/plan/float_convert.h"
#include "runtime/train/state/snapshot.h"
#include "runtime/train/state/weights.h"
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fmt/format.h>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <numeric>
#include <sstream>
#include <sys/fsuid.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

namespace fs = std::filesystem;

namespace cleave::runtime {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class StateTest : public testing::Test {
protected:
  void SetUp() override {
    folder = fs::temp_directory_path() / ("cleave-state-test-" + std::to_string(getpid()));
    fs::create_directories(folder);
  }
  void TearDown() override { fs::remove_all(folder); }
  std::string write(const std::string &name, const std::string &bytes) {
    std::ofstream((folder / name), std::ios::binary) << bytes;
    return (folder / name).string();
  }
  fs::path folder;
};

template <typename Number> std::string textOf(const std::vector<Number> &values) {
  return {reinterpret_cast<const char *>(values.data()), values.size() * sizeof(Number)};
}
template <typename Number> std::span<std::byte> bytesOf(std::vector<Number> &values) {
  return {reinterpret_cast<std::byte *>(values.data()), values.size() * sizeof(Number)};
}

plan::Plan planWith(const std::vector<std::pair<std::string, int64_t>> &axes) {
  plan::Plan plan;
  for (const auto &[name, size] : axes) {
    plan::MeshAxis *axis = plan.mutable_mesh()->add_axes();
    axis->set_name(name);
    axis->set_size(size);
  }
  plan.mutable_training()->set_seed(11);
  return plan;
}
plan::Parameter &addParameter(plan::Plan &plan, const std::string &name, std::vector<int64_t> shape,
                              std::vector<std::vector<std::string>> dims) {
  plan::Parameter &parameter = *plan.add_parameters();
  parameter.set_name(name);
  parameter.set_dtype(plan::F32);
  parameter.set_snapshot(true);
  for (int64_t size : shape) parameter.add_shape(size);
  for (const auto &axes : dims) {
    plan::DimSharding *dim = parameter.add_dims();
    for (const std::string &axis : axes) dim->add_axes(axis);
  }
  return parameter;
}
Shard shardFor(const plan::Plan &plan, const plan::Parameter &parameter, int64_t device) {
  Result<dist::Mesh> mesh = meshOf(plan.mesh());
  return *shardOf(parameter.shape(), parameter.dims(), *mesh, device);
}
std::vector<int64_t> shapeOf(const plan::Parameter &parameter) {
  return {parameter.shape().begin(), parameter.shape().end()};
}

// Five rows over four devices in blocks of two: 2, 2, 1 and none.
TEST_F(StateTest, PaddingIsNoPartOfATensor) {
  plan::Plan plan = planWith({{"dp", 2}, {"tp", 4}});
  plan::Parameter &w = addParameter(plan, "w", {5, 3}, {{"tp"}, {}});
  const dist::Mesh mesh = *meshOf(plan.mesh());
  EXPECT_FALSE(shardOf(w, mesh, 0)); // five do not divide
  for (int64_t size : {8, 3}) w.add_padded_shape(size);
  EXPECT_EQ(*blockOf(w, mesh), (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(blockBytes(w, mesh), 24);
  const std::vector<std::vector<int64_t>> begins{{0, 0}, {2, 0}, {4, 0}, {5, 0}}, sizes{{2, 3}, {2, 3}, {1, 3}, {0, 3}};
  for (int64_t device : {0, 1, 2, 3}) {
    const Shard shard = *shardOf(w, mesh, device);
    EXPECT_EQ(shard.begin, begins[size_t(device)]);
    EXPECT_EQ(shard.size, sizes[size_t(device)]);
  }
  w.set_padded_shape(0, 4); // fewer than the tensor has
  EXPECT_FALSE(shardOf(w, mesh, 0));
}

TEST_F(StateTest, WeightsAreReadBySlice) {
  plan::Plan plan = planWith({{"dp", 2}, {"tp", 2}});
  plan::Parameter &w = addParameter(plan, "w", {4, 6}, {{"dp"}, {"tp"}});
  std::vector<float> values(24);
  std::iota(values.begin(), values.end(), 0.0f);
  write("weights.bin", "skip" + textOf(values));
  plan.set_model_path((folder / "model.onnx").string());
  w.mutable_file()->set_path("weights.bin");
  w.mutable_file()->set_offset(4);
  w.mutable_file()->set_length(96);
  w.mutable_file()->set_dtype(plan::F32);
  WeightReader weights(plan);
  std::vector<float> local(6);
  ASSERT_TRUE(weights.initialize(w, shardFor(plan, w, 3), bytesOf(local)).isOk());
  EXPECT_THAT(local, ElementsAre(15, 16, 17, 21, 22, 23));
  w.mutable_file()->set_offset(5);
  EXPECT_THAT(weights.initialize(w, shardFor(plan, w, 3), bytesOf(local)).message(), HasSubstr("too short"));
  w.mutable_file()->set_path("none.bin");
  EXPECT_THAT(weights.initialize(w, shardFor(plan, w, 3), bytesOf(local)).message(), HasSubstr("parameter 'w'"));
  w.mutable_file()->set_path("../none.bin");
  EXPECT_THAT(weights.initialize(w, shardFor(plan, w, 3), bytesOf(local)).message(), HasSubstr("outside"));
  w.clear_source();
  EXPECT_THAT(weights.initialize(w, shardFor(plan, w, 3), bytesOf(local)).message(), HasSubstr("`init`"));
}

// The checkpoint has [6, 4] where the parameter is [4, 6], and 16 bits where it has 32.
TEST_F(StateTest, WeightsOfACheckpointAreTurned) {
  plan::Plan plan = planWith({{"dp", 2}, {"tp", 2}});
  plan::Parameter &w = addParameter(plan, "w", {4, 6}, {{"dp"}, {"tp"}});
  w.add_original_shape(4);
  w.add_original_shape(6);
  std::vector<uint16_t> values(24);
  for (size_t i = 0; i < 24; ++i) storeFloat(plan::BF16, double(i), reinterpret_cast<std::byte *>(&values[i]));
  fs::create_directories(folder / "hub");
  write("hub/w.safetensors", std::string(reinterpret_cast<const char *>(values.data()), 48));
  plan.set_checkpoint_path((folder / "hub").string());
  plan::Source &source = *w.mutable_file();
  source.set_in_checkpoint(true);
  source.set_path("w.safetensors");
  source.set_length(48);
  source.set_dtype(plan::BF16);
  source.set_transposed(true);
  std::vector<float> local(6);
  auto read = [&] { return WeightReader(plan).initialize(w, shardFor(plan, w, 3), bytesOf(local)).message(); };
  EXPECT_EQ(read(), "");
  EXPECT_THAT(local, ElementsAre(14, 18, 22, 15, 19, 23)); // rows 2 and 3, columns 3 to 5: element (r, c) is 4 c + r
  w.clear_original_shape();
  EXPECT_THAT(read(), HasSubstr("is no matrix, and its source is transposed"));
}

// The gates of an LSTM lie in another order: elements 12 to 18 of the file are the first of the parameter.
TEST_F(StateTest, WeightsOfACheckpointArePutTogether) {
  plan::Plan plan = planWith({{"tp", 3}});
  plan::Parameter &w = addParameter(plan, "w", {3, 6}, {{}, {"tp"}});
  std::vector<float> values(18);
  std::iota(values.begin(), values.end(), 0.0f);
  write("w.safetensors", textOf(values));
  plan.set_checkpoint_path(folder.string());
  for (int64_t begin : {12, 0, 6}) {
    plan::Source &run = *w.mutable_file()->add_runs();
    run.set_in_checkpoint(true);
    run.set_path("w.safetensors");
    run.set_offset(4 * begin);
    run.set_length(24);
    run.set_dtype(plan::F32);
  }
  std::vector<float> local(6);
  auto read = [&] { return WeightReader(plan).initialize(w, shardFor(plan, w, 1), bytesOf(local)).message(); };
  EXPECT_EQ(read(), "");
  EXPECT_THAT(local, ElementsAre(14, 15, 2, 3, 8, 9));
  w.mutable_file()->mutable_runs(2)->set_offset(52);
  EXPECT_THAT(read(), HasSubstr("too short"));
  w.mutable_file()->mutable_runs(1)->set_path("../w.safetensors");
  EXPECT_THAT(read(), HasSubstr("outside of the checkpoint's folder"));
}

// A file that was changed is named; so is the way out.
TEST_F(StateTest, ChangedWeightsAreRefused) {
  plan::Plan plan = planWith({{"dp", 1}});
  plan::Parameter &w = addParameter(plan, "w", {6}, {{}});
  std::vector<float> values{0, 1, 2, 3, 4, 5};
  const std::string place = write("weights.bin", textOf(values));
  plan.set_model_path((folder / "model.onnx").string());
  w.mutable_file()->set_path("weights.bin");
  w.mutable_file()->set_length(24);
  w.mutable_file()->set_dtype(plan::F32);
  ASSERT_TRUE(recordWeightFiles(plan, false));
  ASSERT_EQ(plan.weight_files_size(), 1);
  auto read = [&](WeightCheck check = {}) {
    std::vector<float> local(6);
    return WeightReader(plan, "", check).initialize(w, shardFor(plan, w, 0), bytesOf(local)).message();
  };
  EXPECT_EQ(read(), "");
  EXPECT_THAT(read({.whole = true}), HasSubstr("compile it with --check-weights"));
  fs::last_write_time(place, fs::last_write_time(place) + std::chrono::hours(1)); // a copy has another time
  EXPECT_EQ(read(), "");
  values[5] = 7;
  write("weights.bin", textOf(values));
  EXPECT_THAT(read(), testing::AllOf(HasSubstr("its contents have changed"), HasSubstr(place), HasSubstr("--model")));
  write("weights.bin", textOf(values) + "more");
  EXPECT_THAT(read(), HasSubstr("its size has changed from 24 to 28 bytes"));
  fs::remove(place);
  fs::create_symlink("/etc/hostname", place);
  EXPECT_THAT(read(), HasSubstr("outside of the model's folder"));
}

// Looks at blocks of a large file, at all of it where that is asked for.
TEST_F(StateTest, LargeWeightsAreSampled) {
  plan::Plan plan = planWith({{"dp", 1}});
  constexpr int64_t bytes = (int64_t(80) << 20) + 12;
  plan::Parameter &w = addParameter(plan, "w", {1}, {{}});
  const std::string place = write("weights.bin", "");
  fs::resize_file(place, bytes);
  plan.set_model_path((folder / "model.onnx").string());
  w.mutable_file()->set_path("weights.bin");
  w.mutable_file()->set_length(4);
  w.mutable_file()->set_dtype(plan::F32);
  ASSERT_TRUE(recordWeightFiles(plan, true));
  std::vector<std::string> notes;
  auto read = [&](bool whole) {
    std::vector<float> local(1);
    WeightCheck check{whole, [&](const std::string &text) { notes.push_back(text); }};
    return WeightReader(plan, "", check).initialize(w, shardFor(plan, w, 0), bytesOf(local)).message();
  };
  EXPECT_EQ(read(false), "");
  EXPECT_EQ(read(true), "");
  EXPECT_TRUE(notes.empty());
  auto change = [&](int64_t at) {
    std::fstream file(place, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(at);
    file.put('x');
    file.close();
    fs::last_write_time(place, fs::last_write_time(place) + std::chrono::hours(1));
  };
  change(70 << 10); // between the first two blocks, which begin 80 KiB apart
  EXPECT_EQ(read(false), "");
  ASSERT_EQ(notes.size(), 1U);
  EXPECT_THAT(notes[0], HasSubstr("--check-weights"));
  EXPECT_THAT(read(true), HasSubstr("its contents have changed"));
  change(bytes - 1);
  EXPECT_THAT(read(false), HasSubstr("its contents have changed"));
}

TEST_F(StateTest, RandomWeightsDoNotDependOnTheSplit) {
  plan::Plan whole = planWith({{"dp", 1}}), split = planWith({{"tp", 3}});
  plan::Parameter &a = addParameter(whole, "w", {60, 50}, {{}, {}}),
                  &b = addParameter(split, "w", {60, 50}, {{"tp"}, {}});
  for (plan::Parameter *parameter : {&a, &b}) {
    parameter->mutable_random()->set_kind("normal");
    parameter->mutable_random()->set_std(0.5);
    parameter->mutable_random()->set_stream(4);
  }
  std::vector<float> all(3000), part(1000);
  ASSERT_TRUE(WeightReader(whole).initialize(a, shardFor(whole, a, 0), bytesOf(all)).isOk());
  for (int64_t device = 0; device < 3; ++device) {
    ASSERT_TRUE(WeightReader(split).initialize(b, shardFor(split, b, device), bytesOf(part)).isOk());
    EXPECT_TRUE(std::equal(part.begin(), part.end(), all.begin() + device * 1000));
  }
  double sum = std::accumulate(all.begin(), all.end(), 0.0);
  double squares = std::inner_product(all.begin(), all.end(), all.begin(), 0.0);
  EXPECT_NEAR(sum / 3000, 0, 5 * 0.5 / std::sqrt(3000.0));
  EXPECT_NEAR(std::sqrt(squares / 3000), 0.5, 0.04);
  a.set_fill(1.5);
  ASSERT_TRUE(WeightReader(whole).initialize(a, shardFor(whole, a, 0), bytesOf(all)).isOk());
  EXPECT_EQ(all[2999], 1.5f);
}

TEST(FloatConvert, RoundsToNearestEven) {
  auto half = [](double value) {
    uint16_t bits;
    storeFloat(plan::F16, value, reinterpret_cast<std::byte *>(&bits));
    return bits;
  };
  EXPECT_EQ(half(1.0), 0x3c00);
  EXPECT_EQ(half(-2.0), 0xc000);
  EXPECT_EQ(half(65504.0), 0x7bff);
  EXPECT_EQ(half(65520.0), 0x7c00);
  EXPECT_EQ(half(0x1p-24), 1);
  EXPECT_EQ(half(0x1p-14), 0x0400);
  EXPECT_EQ(half(1.0 + 0x1p-11), 0x3c00);          // a tie, to even
  EXPECT_EQ(half(1.0 + 3 * 0x1p-11), 0x3c02);      // a tie, to even
  EXPECT_EQ(half(2.0 - 0x1p-12), 0x4000);          // carries into the exponent
  for (uint32_t bits = 0; bits < 0x7c00; ++bits) { // every finite half survives
    auto narrow = static_cast<uint16_t>(bits);
    EXPECT_EQ(half(loadFloat(plan::F16, reinterpret_cast<std::byte *>(&narrow))), narrow);
  }
  uint16_t brain;
  storeFloat(plan::BF16, 1.0 + 0x1p-8, reinterpret_cast<std::byte *>(&brain));
  EXPECT_EQ(brain, 0x3f80);
}

TEST_F(StateTest, SafetensorsRoundTripAndRefuseDamage) {
  std::vector<float> w = {1, 2, 3, 4, 5, 6};
  std::vector<int64_t> n = {7};
  std::vector<TensorView> tensors = {{"w", plan::F32, {2, 3}, bytesOf(w)}, {"n", plan::I64, {}, bytesOf(n)}};
  std::string path = (folder / "t.safetensors").string();
  ASSERT_TRUE(writeSafetensors(path, tensors, {{"made", "here"}}).isOk());
  auto file = SafetensorsFile::open(path);
  ASSERT_TRUE(file.isOk()) << file.status().message();
  ASSERT_NE((*file)->find("w"), nullptr);
  EXPECT_EQ(std::memcmp((*file)->find("w")->bytes.data(), w.data(), 24), 0);
  EXPECT_EQ((*file)->find("n")->dtype, plan::I64);
  EXPECT_EQ((*file)->metadata().at("made"), "here");
  EXPECT_EQ((*file)->find("x"), nullptr);
  std::ifstream in(path, std::ios::binary);
  std::string bytes((std::istreambuf_iterator<char>(in)), {});
  for (size_t length = 0; length < bytes.size(); length += 3) {
    write("cut", bytes.substr(0, length));
    EXPECT_FALSE(SafetensorsFile::open((folder / "cut").string()).isOk()) << length;
  }
  for (size_t at = 0; at < bytes.size(); ++at) {
    std::string damaged = bytes;
    damaged[at] = static_cast<char>(~damaged[at]);
    write("cut", damaged);
    (void)SafetensorsFile::open((folder / "cut").string()).isOk(); // must not crash
  }
}

// What Metadata::validate() and the JSON reader of the reference library refuse.
TEST_F(StateTest, SafetensorsAreAsTheReferenceLibraryTakesThem) {
  auto fault = [&](const std::string &header, size_t data) {
    const uint64_t length = header.size();
    write("x.safetensors", std::string(reinterpret_cast<const char *>(&length), 8) + header + std::string(data, 'x'));
    return SafetensorsFile::open((folder / "x.safetensors").string()).status().message();
  };
  auto tensor = [](const std::string &name, const std::string &shape, int begin, int end) {
    return fmt::format(R"("{}":{{"dtype":"U8","shape":[{}],"data_offsets":[{},{}]}})", name, shape, begin, end);
  };
  const std::string a = tensor("a", "4", 0, 4), b = tensor("b", "2,2", 4, 8);
  EXPECT_EQ(fault("{" + a + "," + b + "}", 8), "");
  EXPECT_EQ(fault("{" + b + "," + a + "}   ", 8), ""); // in any order, padded
  EXPECT_EQ(fault("{" + tensor("e", "0,3", 0, 0) + "," + a + "," + tensor("f", "0", 4, 4) + "}", 4), "");
  EXPECT_EQ(fault("{}", 0), "");
  EXPECT_EQ(fault(R"({"__metadata__":null,"s":{"dtype":"U8","shape":[],"data_offsets":[0,1],"more":[]}})", 1), "");
  EXPECT_THAT(fault("{" + a + "," + tensor("b", "4", 2, 6) + "}", 6), HasSubstr("'b' begins at byte 2")); // overlaps
  EXPECT_THAT(fault("{" + a + "," + tensor("b", "4", 0, 4) + "}", 4), HasSubstr("begins at byte 0"));     // the same
  EXPECT_THAT(fault("{" + a + "," + tensor("b", "4", 5, 9) + "}", 9),
              HasSubstr("the one before it ends at 4")); // a hole
  EXPECT_THAT(fault("{" + tensor("a", "4", 1, 5) + "}", 5), HasSubstr("'a' begins at byte 1"));
  EXPECT_THAT(fault("{" + a + "}", 5), HasSubstr("1 bytes follow the last tensor"));
  EXPECT_THAT(fault("{}", 1), HasSubstr("1 bytes follow"));
  EXPECT_THAT(fault("{" + a + "}", 3), HasSubstr("ends beyond the file"));
  EXPECT_THAT(fault("{" + a + "," + tensor("a", "4", 0, 4) + "}", 4), HasSubstr("'a' twice"));
  EXPECT_THAT(fault(R"({"a":{"dtype":"U8","dtype":"I8","shape":[1],"data_offsets":[0,1]}})", 1), HasSubstr("twice"));
  EXPECT_THAT(fault("{" + tensor("a", "5", 0, 4) + "}", 4), HasSubstr("do not fit its shape"));
  EXPECT_THAT(fault("{" + tensor("a", "4294967296,4294967296,4", 0, 4) + "}", 4), HasSubstr("do not fit its shape"));
  EXPECT_THAT(fault(R"({"a":{"dtype":"U9","shape":[1],"data_offsets":[0,1]}})", 1), HasSubstr("unknown type"));
  for (const char *damaged :
       {" {}", "[]", "", "{", "{}}", "{\xff}", R"({"a":1})", R"({"a":{"dtype":"U8","shape":[1]}})",
        R"({"__metadata__":{"a":1}})", R"({"a":{"dtype":"U8","shape":1,"data_offsets":[0,1]}})",
        R"({"a":{"dtype":"U8","shape":[1.0],"data_offsets":[0,1]}})",
        R"({"a":{"dtype":"U8","shape":[true],"data_offsets":[0,1]}})",
        R"({"a":{"dtype":"U8","shape":[-1],"data_offsets":[0,1]}})",
        R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0.0,1]}})"})
    EXPECT_THAT(fault(damaged, 0), HasSubstr("its header is damaged")) << damaged;
  EXPECT_NE(fault(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1,1]}})", 1), "");
  EXPECT_THAT(fault("{" + std::string(100'000'000, ' ') + "}", 0), HasSubstr("is not a safetensors file"));
  std::vector<float> w(1);
  const TensorView twice{"w", plan::F32, {1}, bytesOf(w)};
  const std::vector<TensorView> both{twice, twice};
  EXPECT_THAT(writeSafetensors((folder / "w").string(), both).message(), HasSubstr("two tensors are called 'w'"));
  EXPECT_FALSE(fs::exists(folder / "w"));
}

// Writes a snapshot of one tensor of 4 x 6 and one of 6, both counting from `start`, as `plan` splits them.
Status save(const plan::Plan &plan, const std::string &folder, int64_t step, float start, KeptSnapshots keep = {},
            std::optional<double> score = {}) {
  Result<dist::Mesh> mesh = meshOf(plan.mesh());
  SnapshotManifest manifest = manifestOf(plan);
  manifest.step = step;
  manifest.sampler = {3, 40};
  manifest.score = score;
  SnapshotWriter writer(folder, manifest, keep);
  std::vector<SnapshotManifest::File> files;
  for (int64_t device = 0; device < mesh->numDevices(); ++device) {
    std::vector<std::vector<float>> storage;
    std::vector<HeldBox> boxes;
    storage.reserve(4);
    for (const plan::Parameter &parameter : plan.parameters()) {
      if (!writesBox(parameter, *mesh, device)) continue;
      std::vector<float> whole(static_cast<size_t>(elementCount(parameter.shape())));
      std::iota(whole.begin(), whole.end(), start);
      Shard box = shardFor(plan, parameter, device);
      std::vector<float> &local = storage.emplace_back(static_cast<size_t>(elementCount(box.size)));
      CLEAVE_RETURN_IF_ERROR(copyBox(reinterpret_cast<std::byte *>(whole.data()), plan::F32, shapeOf(parameter), box,
                                     reinterpret_cast<std::byte *>(local.data()), plan::F32));
      boxes.push_back({&parameter, box, bytesOf(local)});
    }
    Result<SnapshotManifest::File> file = writer.writeRank(device, boxes);
    if (!file) return file.status();
    files.push_back(*file);
  }
  return writer.commit(std::move(files));
}

plan::Plan example(const std::vector<std::pair<std::string, int64_t>> &mesh,
                   const std::vector<std::vector<std::string>> &dims) {
  plan::Plan plan = planWith(mesh);
  addParameter(plan, "w", {4, 6}, dims);
  addParameter(plan, "b", {6}, {dims.back()});
  return plan;
}

void expectHolds(const Snapshot &snapshot, const plan::Plan &plan, float start) {
  Result<dist::Mesh> mesh = meshOf(plan.mesh());
  for (const plan::Parameter &parameter : plan.parameters())
    for (int64_t device = 0; device < mesh->numDevices(); ++device) {
      Shard box = shardFor(plan, parameter, device);
      std::vector<float> whole(static_cast<size_t>(elementCount(parameter.shape()))),
          want(static_cast<size_t>(elementCount(box.size)));
      std::iota(whole.begin(), whole.end(), start);
      ASSERT_TRUE(copyBox(reinterpret_cast<std::byte *>(whole.data()), plan::F32, shapeOf(parameter), box,
                          reinterpret_cast<std::byte *>(want.data()), plan::F32)
                      .isOk());
      std::vector<float> got(want.size());
      Status status = snapshot.read(parameter.name(), plan::F32, shapeOf(parameter), box, bytesOf(got));
      ASSERT_TRUE(status.isOk()) << status.message();
      EXPECT_EQ(got, want);
    }
}

TEST_F(StateTest, SnapshotsLoadUnderAnySplit) {
  std::vector<plan::Plan> plans = {example({{"dp", 1}}, {{}, {}}), example({{"dp", 2}, {"tp", 2}}, {{"dp"}, {"tp"}}),
                                   example({{"dp", 2}, {"tp", 3}}, {{}, {"dp", "tp"}}),
                                   example({{"dp", 4}}, {{"dp"}, {}}),
                                   example({{"dp", 2}, {"tp", 3}}, {{}, {"tp", "dp"}})};
  for (const plan::Plan &from : plans) {
    std::string where = (folder / "s").string();
    ASSERT_TRUE(save(from, where, 5, 100).isOk());
    auto snapshot = Snapshot::open(where);
    ASSERT_TRUE(snapshot.isOk()) << snapshot.status().message();
    EXPECT_EQ((*snapshot)->manifest().step, 5);
    EXPECT_EQ((*snapshot)->manifest().sampler.position, 40);
    EXPECT_EQ((*snapshot)->manifest().seed, 11u);
    for (const plan::Plan &to : plans) {
      EXPECT_TRUE(checkResumes(**snapshot, to).isOk());
      expectHolds(**snapshot, to, 100);
    }
    fs::remove_all(where);
  }
}

TEST_F(StateTest, EqualCopiesAreWrittenOnce) {
  plan::Plan plan = example({{"dp", 2}, {"tp", 2}}, {{}, {"tp"}});
  Result<dist::Mesh> mesh = meshOf(plan.mesh());
  std::vector<bool> writes;
  for (int64_t device = 0; device < 4; ++device) writes.push_back(writesBox(plan.parameters(0), *mesh, device));
  EXPECT_THAT(writes, ElementsAre(true, true, false, false));
}

TEST_F(StateTest, TheNewestTwoAreKept) {
  plan::Plan plan = example({{"dp", 2}}, {{"dp"}, {}});
  for (int64_t step : {1, 2, 3}) ASSERT_TRUE(save(plan, folder.string(), step, static_cast<float>(step)).isOk());
  ASSERT_TRUE(save(plan, folder.string(), 3, 33).isOk()); // the same step again replaces it
  EXPECT_FALSE(fs::exists(folder / "step-00000001"));
  EXPECT_TRUE(fs::exists(folder / "step-00000002"));
  auto newest = Snapshot::open(folder.string());
  ASSERT_TRUE(newest.isOk());
  EXPECT_EQ((*newest)->manifest().step, 3);
  expectHolds(**newest, plan, 33);
}

TEST_F(StateTest, SoManyAreKeptAndTheBest) {
  plan::Plan plan = example({{"dp", 2}}, {{"dp"}, {}});
  const std::vector<std::optional<double>> losses = {3.0, 2.0, {}, 2.5, {}, 2.75};
  for (size_t i = 0; i < losses.size(); ++i)
    ASSERT_TRUE(save(plan, folder.string(), static_cast<int64_t>(i + 1), 1, {3, true}, losses[i]).isOk());
  std::vector<std::string> left;
  for (const fs::directory_entry &entry : fs::directory_iterator(folder))
    left.push_back(entry.path().filename().string());
  EXPECT_THAT(
      left, testing::UnorderedElementsAre("best", "step-00000002", "step-00000004", "step-00000005", "step-00000006"));
  EXPECT_EQ(fs::read_symlink(folder / "best"), "step-00000002");
  auto best = Snapshot::open((folder / "best").string());
  ASSERT_TRUE(best.isOk()) << best.status().message();
  EXPECT_EQ((*best)->manifest().step, 2);
  EXPECT_EQ((*best)->manifest().score, 2.0);
}

// A rank that cannot write says why, and without its file there is no snapshot.
TEST_F(StateTest, ARankThatCannotWriteLeavesNoSnapshot) {
  plan::Plan plan = example({{"dp", 2}}, {{"dp"}, {}});
  ASSERT_TRUE(save(plan, folder.string(), 1, 1).isOk());
  SnapshotManifest manifest = manifestOf(plan);
  manifest.step = 2;
  SnapshotWriter writer(folder.string(), manifest);
  Result<SnapshotManifest::File> file = writer.writeRank(0, {});
  ASSERT_TRUE(file.isOk());
  fs::create_directories(folder / ".step-00000002.partial" / rankFileName(1)); // is no file
  EXPECT_THAT(writer.writeRank(1, {}).status().message(), HasSubstr("cannot be written: Is a directory"));
  EXPECT_THAT(writer.commit({*file}).message(), HasSubstr("a rank has not written its part"));
  EXPECT_FALSE(fs::exists(folder / ".step-00000002.partial"));
  auto snapshot = Snapshot::open(folder.string());
  ASSERT_TRUE(snapshot.isOk());
  EXPECT_EQ((*snapshot)->manifest().step, 1);
}

// Ranks that see different folders: what one has written is not there, or is another file.
TEST_F(StateTest, AFileThatTheFirstProcessDoesNotSeeIsNotCommitted) {
  plan::Plan plan = example({{"dp", 2}}, {{"dp"}, {}});
  SnapshotManifest manifest = manifestOf(plan);
  manifest.step = 2;
  SnapshotWriter writer(folder.string(), manifest);
  Result<SnapshotManifest::File> file = writer.writeRank(0, {});
  ASSERT_TRUE(file.isOk());
  EXPECT_THAT(writer.commit({*file, *file}).message(), HasSubstr("rank-0001.safetensors: No such file"));
  ASSERT_TRUE(writer.writeRank(0, {}).isOk() && writer.writeRank(1, {}).isOk());
  EXPECT_THAT(writer.commit({*file, {file->bytes, "of another moment"}}).message(),
              HasSubstr("is not the file that rank 1 has written"));
  EXPECT_TRUE(snapshotsIn(folder.string())->empty());
}

TEST_F(StateTest, IncompleteOnesAreIgnored) {
  plan::Plan plan = example({{"dp", 2}}, {{"dp"}, {}});
  ASSERT_TRUE(save(plan, folder.string(), 1, 1).isOk());
  ASSERT_TRUE(save(plan, folder.string(), 2, 2).isOk());
  fs::create_directories(folder / ".step-00000003.partial");
  fs::resize_file(folder / "step-00000002" / rankFileName(1), 20);
  auto newest = Snapshot::open(folder.string());
  ASSERT_TRUE(newest.isOk()) << newest.status().message();
  EXPECT_EQ((*newest)->manifest().step, 1);
  EXPECT_THAT(Snapshot::open((folder / "step-00000002").string()).status().message(), HasSubstr("missing or cut off"));
  fs::remove_all(folder / "step-00000001");
  EXPECT_FALSE(Snapshot::open(folder.string()).isOk());
  EXPECT_THAT(Snapshot::open((folder / "none").string()).status().message(), HasSubstr("no such snapshot"));
}

// A changed byte anywhere is found: in a tensor, in a rank file's header, in the manifest.
TEST_F(StateTest, DamagedBytesAreFound) {
  plan::Plan plan = example({{"dp", 2}}, {{"dp"}, {}});
  const std::string name = (folder / "step-00000001" / rankFileName(1)).string();
  auto change = [](const std::string &path, std::streamoff fromEnd, char by) {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(fromEnd, fromEnd < 0 ? std::ios::end : std::ios::beg);
    const auto at = file.tellg();
    const char byte = static_cast<char>(file.get() ^ by);
    file.seekp(at);
    file.put(byte);
  };
  ASSERT_TRUE(save(plan, folder.string(), 1, 1).isOk());
  change(name, -1, 0x40); // an exponent's bit
  auto snapshot = Snapshot::open(folder.string());
  ASSERT_TRUE(snapshot.isOk()) << snapshot.status().message();
  std::vector<float> whole(24);
  const Status read = (*snapshot)->read("w", plan::F32, std::vector<int64_t>{4, 6}, {{0, 0}, {4, 6}}, bytesOf(whole));
  EXPECT_THAT(read.message(), HasSubstr("tensor 'w' is damaged"));
  std::vector<float> upper(12); // of the other rank's file
  EXPECT_TRUE((*snapshot)->read("w", plan::F32, std::vector<int64_t>{4, 6}, {{0, 0}, {2, 6}}, bytesOf(upper)).isOk());

  ASSERT_TRUE(save(plan, folder.string(), 1, 1).isOk());
  change(name, 40, 0x01);
  EXPECT_FALSE(Snapshot::open(folder.string()).isOk());

  ASSERT_TRUE(save(plan, folder.string(), 1, 1).isOk());
  const std::string manifest = (folder / "step-00000001" / "manifest.json").string();
  std::stringstream text;
  text << std::ifstream(manifest).rdbuf();
  std::string changed = text.str();
  changed.replace(changed.find("\"step\": 1"), 9, "\"step\": 2");
  std::ofstream(manifest) << changed;
  EXPECT_THAT(Snapshot::open(folder.string()).status().message(), HasSubstr("its checksum is another"));
}

// A file of another run, or of another moment, never becomes part of a snapshot.
TEST_F(StateTest, ForeignFilesAreNotCommitted) {
  plan::Plan plan = example({{"dp", 2}}, {{"dp"}, {}});
  SnapshotManifest manifest = manifestOf(plan);
  manifest.step = 2, manifest.run = "a";
  SnapshotWriter writer(folder.string(), manifest);
  Result<SnapshotManifest::File> file = writer.writeRank(0, {});
  ASSERT_TRUE(file.isOk());
  ASSERT_TRUE(writeRankFile((folder / ".step-00000002.a.partial").string(), 1, {}, "b").isOk());
  EXPECT_THAT(writer.commit({*file, *file}).message(), HasSubstr("was written by another run"));
  EXPECT_TRUE(snapshotsIn(folder.string())->empty());
}

TEST_F(StateTest, AFolderIsOneRuns) {
  FolderLock first, second;
  ASSERT_TRUE(first.take(folder.string(), 0).isOk());
  EXPECT_THAT(second.take(folder.string(), 0.05).message(),
              HasSubstr(fmt::format("another run writes here (process {} on ", getpid())));
  EXPECT_TRUE(*isFreshSnapshotFolder(folder.string()));
}

TEST_F(StateTest, AFolderThatCannotBeListedIsNotFresh) {
  std::ofstream(folder / "file") << "x";
  EXPECT_THAT(isFreshSnapshotFolder((folder / "file").string()).status().message(), HasSubstr("cannot be listed"));
  EXPECT_TRUE(*isFreshSnapshotFolder((folder / "none").string()));
}

// What cannot be read is not said to be empty.
TEST_F(StateTest, WhyASnapshotCannotBeReadIsSaid) {
  plan::Plan plan = example({{"dp", 1}}, {{}, {}});
  ASSERT_TRUE(save(plan, (folder / "s").string(), 1, 1).isOk());
  auto fault = [&](const std::string &name) { return Snapshot::open((folder / name).string()).status().message(); };
  EXPECT_EQ(fault("s"), "");
  fs::create_directories(folder / "listed");
  EXPECT_THAT(fault("listed"), HasSubstr("holds no snapshot"));
  write("file", "x");
  EXPECT_THAT(fault("file"), HasSubstr("file: is a file, and snapshots are in folders"));
  fs::create_symlink("loop", folder / "loop");
  EXPECT_THAT(fault("loop"), HasSubstr("loop: cannot be read: Too many levels of symbolic links"));
  fs::create_symlink("step-00000002", folder / "listed" / "step-00000002");
  EXPECT_THAT(fault("listed"), HasSubstr("step-00000002/manifest.json: cannot be opened: Too many levels"));
  // As another user than root, where this one is root.
  const uid_t user = geteuid() == 0 ? 65534 : geteuid();
  const fs::perms mode = fs::status(folder).permissions();
  for (auto [denied, said] : {std::pair(fs::perms(0), "s/manifest.json: cannot be read: Permission denied"),
                              std::pair(fs::perms(0111), "s: cannot be listed: Permission denied")}) {
    fs::permissions(folder, fs::perms(0755));
    fs::permissions(folder / "s", denied);
    setfsuid(user);
    EXPECT_THAT(fault("s"), HasSubstr(said));
    setfsuid(geteuid());
    fs::permissions(folder / "s", fs::perms(0755));
  }
  fs::permissions(folder, mode);
}

TEST_F(StateTest, KilledAtAnyMomentOneIsWhole) {
  plan::Plan plan = example({{"dp", 2}}, {{"dp"}, {}});
  std::string where = (folder / "s").string();
  ASSERT_TRUE(save(plan, where, 1, 1).isOk());
  int64_t least = 1;
  for (int round = 0; round < 12; ++round) {
    pid_t child = fork();
    if (child == 0)
      for (int64_t step = least + 1;; ++step)
        if (!save(plan, where, step, static_cast<float>(step)).isOk()) _exit(1);
    usleep(2000 + 1700 * round);
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    auto snapshot = Snapshot::open(where);
    ASSERT_TRUE(snapshot.isOk()) << snapshot.status().message();
    EXPECT_GE((*snapshot)->manifest().step, least);
    least = (*snapshot)->manifest().step;
    expectHolds(**snapshot, plan, static_cast<float>(least));
  }
}

TEST_F(StateTest, AFullDiskLeavesTheOldOne) {
  plan::Plan plan = example({{"dp", 1}}, {{}, {}});
  std::string where = (folder / "s").string();
  ASSERT_TRUE(save(plan, where, 1, 1).isOk());
  signal(SIGXFSZ, SIG_IGN);
  rlimit before, small = {100, 0}; // files may not grow beyond 100 bytes: writes fail as on a full disk
  getrlimit(RLIMIT_FSIZE, &before);
  small.rlim_max = before.rlim_max;
  setrlimit(RLIMIT_FSIZE, &small);
  Status status = save(plan, where, 2, 2);
  setrlimit(RLIMIT_FSIZE, &before);
  EXPECT_THAT(status.message(), HasSubstr("cannot be written: File too large"));
  EXPECT_EQ(status.exitStatus(), 4);
  auto snapshot = Snapshot::open(where);
  ASSERT_TRUE(snapshot.isOk());
  EXPECT_EQ((*snapshot)->manifest().step, 1);
  ASSERT_TRUE(save(plan, where, 2, 2).isOk()); // and the leftovers are no hindrance
}

TEST_F(StateTest, OtherPlansAreRefused) {
  plan::Plan plan = example({{"dp", 1}}, {{}, {}});
  ASSERT_TRUE(save(plan, folder.string(), 1, 1).isOk());
  auto snapshot = Snapshot::open(folder.string());
  ASSERT_TRUE(snapshot.isOk());
  plan::Plan more = plan;
  addParameter(more, "exp_avg/w", {4, 6}, {{}, {}});
  EXPECT_THAT(checkResumes(**snapshot, more).message(), HasSubstr("has no 'exp_avg/w'"));
  plan::Plan reshaped = plan;
  reshaped.mutable_parameters(0)->set_shape(0, 5);
  EXPECT_THAT(checkResumes(**snapshot, reshaped).message(),
              HasSubstr("'w' is f32 [4, 6], in the plan it is f32 [5, 6]"));
  EXPECT_NE(planFingerprint(plan), planFingerprint(more));
  plan::Plan reported = plan;
  reported.set_report_json("{}");
  EXPECT_EQ(planFingerprint(plan), planFingerprint(reported));
}

} // namespace
} // namespace cleave::runtime
