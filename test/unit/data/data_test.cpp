#include "runtime/train/data/array.h"
#include "runtime/train/data/dataset.h"
#include <cstring>
#include <filesystem>
#include <fmt/format.h>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <numeric>
#include <set>
#include <unistd.h>
#include <zlib.h>

namespace fs = std::filesystem;

namespace cleave::runtime {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class DataTest : public testing::Test {
protected:
  void SetUp() override {
    folder = fs::temp_directory_path() / ("cleave-data-test-" + std::to_string(getpid()));
    fs::create_directories(folder);
  }
  void TearDown() override { fs::remove_all(folder); }
  std::string write(const std::string &name, const std::string &bytes) {
    std::ofstream((folder / name), std::ios::binary) << bytes;
    return (folder / name).string();
  }
  fs::path folder;
};

template <typename Number> std::string bytesOf(const std::vector<Number> &values) {
  return {reinterpret_cast<const char *>(values.data()), values.size() * sizeof(Number)};
}
template <typename Number> void put(std::string &out, Number value) {
  out.append(reinterpret_cast<const char *>(&value), sizeof value);
}

// As numpy writes it: magic, version 1.0, header padded to 64 bytes.
std::string npy(const std::string &descr, const std::string &shape, const std::string &data, bool fortran = false) {
  std::string header =
      "{'descr': '" + descr + "', 'fortran_order': " + (fortran ? "True" : "False") + ", 'shape': " + shape + ", }";
  while ((10 + header.size() + 1) % 64 != 0) header += ' ';
  header += '\n';
  std::string out("\x93NUMPY\x01\x00", 8);
  put(out, static_cast<uint16_t>(header.size()));
  return out + header + data;
}

// A zip archive of one entry.
std::string zip(const std::string &name, const std::string &content, bool deflated) {
  std::string stored = content;
  if (deflated) {
    stored.resize(compressBound(content.size()));
    z_stream stream = {};
    deflateInit2(&stream, 6, Z_DEFLATED, -MAX_WBITS, 8, Z_DEFAULT_STRATEGY);
    stream.next_in = reinterpret_cast<Bytef *>(const_cast<char *>(content.data()));
    stream.avail_in = static_cast<uInt>(content.size());
    stream.next_out = reinterpret_cast<Bytef *>(stored.data());
    stream.avail_out = static_cast<uInt>(stored.size());
    deflate(&stream, Z_FINISH);
    stored.resize(stream.total_out);
    deflateEnd(&stream);
  }
  auto common = [&](std::string &out) {
    put<uint16_t>(out, 0), put<uint16_t>(out, deflated ? 8 : 0), put<uint32_t>(out, 0);
    put<uint32_t>(out, static_cast<uint32_t>(crc32(0, reinterpret_cast<const Bytef *>(content.data()),
                                                   static_cast<uInt>(content.size()))));
    put<uint32_t>(out, static_cast<uint32_t>(stored.size())), put<uint32_t>(out, static_cast<uint32_t>(content.size()));
    put<uint16_t>(out, static_cast<uint16_t>(name.size())), put<uint16_t>(out, 0);
  };
  std::string out;
  put<uint32_t>(out, 0x04034b50), put<uint16_t>(out, 20);
  common(out);
  out += name + stored;
  auto directory = static_cast<uint32_t>(out.size());
  put<uint32_t>(out, 0x02014b50), put<uint16_t>(out, 20), put<uint16_t>(out, 20);
  common(out);
  put<uint16_t>(out, 0), put<uint16_t>(out, 0), put<uint16_t>(out, 0), put<uint32_t>(out, 0), put<uint32_t>(out, 0);
  out += name;
  auto end = static_cast<uint32_t>(out.size());
  put<uint32_t>(out, 0x06054b50), put<uint32_t>(out, 0), put<uint16_t>(out, 1), put<uint16_t>(out, 1);
  put<uint32_t>(out, end - directory), put<uint32_t>(out, directory), put<uint16_t>(out, 0);
  return out;
}

template <typename Number> std::vector<Number> taken(const Dataset &data, size_t field, std::vector<int64_t> indices) {
  std::vector<Number> out(indices.size() * static_cast<size_t>(data.fields()[field].elements()));
  Status status = data.fill(field, indices, reinterpret_cast<std::byte *>(out.data()));
  EXPECT_TRUE(status.isOk()) << status.message();
  return out;
}

DataSource opened(const std::string &yaml, const std::vector<Field> &fields) {
  Result<DataSource> source = openData(yaml, fields);
  EXPECT_TRUE(source.isOk()) << source.status().message();
  return source ? std::move(*source) : DataSource();
}
std::string fault(const std::string &yaml, const std::vector<Field> &fields) {
  Result<DataSource> source = openData(yaml, fields);
  EXPECT_FALSE(source.isOk());
  return source.status().message();
}

TEST_F(DataTest, ArraysFromNpzStoredAndDeflated) {
  std::vector<float> values(2 * 3 * 4);
  std::iota(values.begin(), values.end(), 0.0f);
  for (bool deflated : {false, true}) {
    std::string path = write("x.npz", zip("x.npy", npy("<f4", "(2, 3, 4)", bytesOf(values)), deflated));
    // Samples of [4]: two leading axes are steps and batch. Samples of [3, 4]: one.
    DataSource flat = opened("{kind: arrays, path: " + path + "}", {{"x", plan::F32, {4}}});
    EXPECT_EQ(flat.train->size(), 6);
    EXPECT_THAT(taken<float>(*flat.train, 0, {5, 1}), ElementsAre(20, 21, 22, 23, 4, 5, 6, 7));
    DataSource whole = opened("{kind: arrays, path: " + path + ", shuffle: false}", {{"x", plan::F32, {3, 4}}});
    EXPECT_EQ(whole.train->size(), 2);
    EXPECT_FALSE(whole.train->shuffle());
  }
}

TEST_F(DataTest, ArraysFromAFolderConvertAndSplit) {
  write("image.npy", npy("|u1", "(4, 2)", bytesOf<uint8_t>({0, 1, 2, 3, 250, 255, 6, 7})));
  write("y.npy", npy("<i4", "(4,)", bytesOf<int32_t>({3, 2, 1, 0})));
  DataSource source = opened("{kind: arrays, path: " + folder.string() + ", train_split: 0.5, fields: {input: image}}",
                             {{"input", plan::F32, {2}}, {"y", plan::I64, {1}, true}});
  EXPECT_EQ(source.train->size(), 2);
  ASSERT_NE(source.evaluation, nullptr);
  EXPECT_THAT(taken<float>(*source.evaluation, 0, {0}), ElementsAre(250, 255));
  EXPECT_THAT(taken<int64_t>(*source.evaluation, 1, {0, 1}), ElementsAre(1, 0));
}

// Sets of arrays one behind the other: here folders of .npy.
TEST_F(DataTest, ArraysOfSeveralFiles) {
  auto writeSet = [&](const std::string &name, std::vector<int32_t> x, std::vector<int64_t> labels,
                      std::vector<int64_t> scale) {
    fs::create_directories(folder / name);
    write(name + "/x.npy", npy("<i4", fmt::format("({}, 2)", x.size() / 2), bytesOf(x)));
    write(name + "/labels.npy", npy("<i8", fmt::format("({},)", labels.size()), bytesOf(labels)));
    write(name + "/scale.npy", npy("<i8", "(2,)", bytesOf(scale)));
    return (folder / name).string();
  };
  const std::string a = writeSet("a", {1, 2, 3, 4, 5, 6}, {0, 1, 2}, {7, 8}), b = writeSet("b", {9, 10}, {3}, {7, 8});
  std::vector<Field> fields = {
      {"x", plan::F32, {2}}, {"scale", plan::I64, {2}}, {"labels", plan::I64, {}, true, 9, int64_t(0)}};
  fields[1].withoutSamples = true;
  const std::string yaml = fmt::format("{{kind: arrays, path: [{}, {}, {}], train_split: 0.8}}", b, a, b);
  DataSource source = opened(yaml, fields);
  EXPECT_EQ(source.train->size(), 4);
  EXPECT_THAT(taken<float>(*source.train, 0, {3, 0, 1}), ElementsAre(5, 6, 9, 10, 1, 2));
  EXPECT_THAT(taken<int64_t>(*source.train, 2, {0, 1, 2, 3}), ElementsAre(3, 0, 1, 2));
  EXPECT_THAT(taken<int64_t>(*source.evaluation, 2, {0}), ElementsAre(3));
  // What is wrong is told with its file, and the sample's number there.
  writeSet("a", {1, 2, 3, 4, 5, 6}, {0, 11, 2}, {7, 8});
  std::vector<std::byte> bytes(8);
  EXPECT_THAT(opened(yaml, fields).train->fill(2, std::array<int64_t, 1>{2}, bytes.data()).message(),
              HasSubstr("/a: label 11 at sample 1"));
  writeSet("a", {1, 2}, {0}, {7, 9});
  EXPECT_THAT(fault(yaml, fields), HasSubstr("/a: array 'scale' is not that of"));
  writeSet("a", {1, 2}, {0, 1}, {7, 8});
  EXPECT_THAT(fault(yaml, fields), HasSubstr("/a: array 'labels' holds 2 samples, the ones before it 1"));
  writeSet("a", {1, 2}, {0}, {7, 8});
  fs::remove(folder / "a" / "scale.npy");
  source = opened("{fill: {scale: ones}, " + yaml.substr(1), fields);
  EXPECT_THAT(taken<int64_t>(*source.train, 1, {0}), ElementsAre(1, 1));
  fields[1].name = "position_ids";
  fs::rename(folder / "b" / "scale.npy", folder / "b" / "position_ids.npy");
  EXPECT_THAT(fault(yaml, fields), HasSubstr("/a: has not an array 'position_ids', and the files before it have one"));
}

TEST_F(DataTest, ArraysOfSeveralLengthsInSeveralFiles) {
  auto writeSet = [&](const std::string &name, std::vector<int64_t> ids, std::vector<int64_t> offsets) {
    fs::create_directories(folder / name);
    write(name + "/ids.npy", npy("<i8", fmt::format("({},)", ids.size()), bytesOf(ids)));
    write(name + "/offsets.npy", npy("<i8", fmt::format("({},)", offsets.size()), bytesOf(offsets)));
    return (folder / name).string();
  };
  const std::string a = writeSet("a", {1, 2, 3, 4, 99}, {1, 3, 4}), b = writeSet("b", {5, 6, 7}, {0, 2, 3});
  const std::vector<Field> fields = {{"ids", plan::I64, {4}}};
  DataSource source = opened(fmt::format("{{kind: arrays, lengths: [4], path: [{}, {}]}}", a, b), fields);
  EXPECT_EQ(source.train->size(), 4);
  EXPECT_THAT(taken<int64_t>(*source.train, 0, {0, 1}), ElementsAre(2, 3, 0, 0, 4, 0, 0, 0));
  EXPECT_THAT(taken<int64_t>(*source.train, 0, {2, 3}), ElementsAre(5, 6, 0, 0, 7, 0, 0, 0));
  writeSet("b", {5, 6, 7, 8, 9}, {0, 5});
  EXPECT_THAT(fault(fmt::format("{{kind: arrays, lengths: [4], path: [{}, {}]}}", a, b), fields),
              HasSubstr("/b: sample 2 has 5 positions"));
}

// Sources stand one behind the other; the sampler draws from them.
TEST_F(DataTest, MixturesHaveAllSources) {
  const std::string one = write("one.bin", bytesOf<uint16_t>({0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11})),
                    two = write("two.bin", bytesOf<uint16_t>({20, 21, 22, 23, 24, 25, 26}));
  const std::vector<Field> fields = {{"ids", plan::I64, {3}}, {"labels", plan::I64, {3}, true}};
  const std::string sources =
      fmt::format("[{{kind: tokens, path: {}, weight: 3, train_split: 0.6}}, {{kind: tokens, path: {}}}]", one, two);
  DataSource source = opened("{kind: mixture, shuffle: false, sources: " + sources + "}", fields);
  ASSERT_EQ(source.train->size(), 2 + 2);
  EXPECT_FALSE(source.train->shuffle());
  EXPECT_THAT(taken<int64_t>(*source.train, 0, {3, 0, 1}), ElementsAre(23, 24, 25, 0, 1, 2, 3, 4, 5));
  EXPECT_THAT(taken<int64_t>(*source.train, 1, {2}), ElementsAre(21, 22, 23));
  const std::vector<Share> shares = source.train->shares();
  ASSERT_EQ(shares.size(), 2u);
  EXPECT_EQ(shares[0].samples, 2);
  EXPECT_EQ(shares[0].weight, 3);
  EXPECT_EQ(shares[1].weight, 1);
  EXPECT_THAT(fault("{kind: mixture, sources: []}", fields), HasSubstr("needs sources"));
  EXPECT_THAT(fault("{kind: mixture, sources: [{kind: mixture}]}", fields), HasSubstr("source 1 is a mixture itself"));
  EXPECT_THAT(fault("{kind: mixture, sources: [{kind: synthetic, weight: .nan}]}", fields),
              HasSubstr("a weight of nan"));
  EXPECT_THAT(openData("{kind: mixture, sources: " + sources + "}", fields, {.path = one}).status().message(),
              HasSubstr("none can replace them all"));
}

TEST_F(DataTest, ArrayFaultsNameWhatIsWrong) {
  std::string good = zip("x.npy", npy("<f4", "(2, 3)", bytesOf(std::vector<float>(6))), true);
  std::string path = write("x.npz", good), yaml = "{kind: arrays, path: " + path + "}";
  EXPECT_THAT(fault(yaml, {{"z", plan::F32, {3}}}),
              HasSubstr("has no array 'z' for the input of that name; it has: x"));
  EXPECT_THAT(fault(yaml, {{"x", plan::F32, {4}}}), HasSubstr("array 'x' is f32 [2, 3]"));
  EXPECT_THAT(fault(yaml, {{"x", plan::I64, {3}}}), HasSubstr("an array of f32 cannot serve as i64"));
  for (size_t length : {size_t(0), size_t(10), good.size() / 2, good.size() - 1}) {
    write("x.npz", good.substr(0, length));
    EXPECT_THAT(fault(yaml, {{"x", plan::F32, {3}}}), HasSubstr(path));
  }
  std::string damaged = good;
  damaged[40] ^= 1;
  write("x.npz", damaged);
  fault(yaml, {{"x", plan::F32, {3}}});
  for (size_t at = 0; at < good.size(); ++at) { // no byte that is wrong may crash
    damaged = good;
    damaged[at] = static_cast<char>(~damaged[at]);
    write("x.npz", damaged);
    (void)openData(yaml, {{"x", plan::F32, {3}}}).isOk();
  }
  EXPECT_THAT(fault("{kind: arrays, path: " + folder.string() + "/none.npz}", {{"x", plan::F32, {3}}}),
              HasSubstr("none.npz"));
  write("f.npz", zip("x.npy", npy("<f4", "(2, 3)", bytesOf(std::vector<float>(6)), true), false));
  EXPECT_THAT(fault("{kind: arrays, path: " + folder.string() + "/f.npz}", {{"x", plan::F32, {3}}}),
              HasSubstr("Fortran order"));
  write("big.npz", zip("x.npy", npy(">f4", "(2, 3)", bytesOf(std::vector<float>(6))), false));
  EXPECT_THAT(fault("{kind: arrays, path: " + folder.string() + "/big.npz}", {{"x", plan::F32, {3}}}),
              HasSubstr("numpy type"));
  // A second entry of the directory with the bytes of the first: thousands of them would unpack into terabytes.
  std::string shared = zip("x.npy", npy("<f4", "(64, 3)", bytesOf(std::vector<float>(192))), false);
  const size_t directory = shared.rfind("PK\x01\x02"), end = shared.rfind("PK\x05\x06");
  shared.insert(end, shared.substr(directory, end - directory));
  shared[shared.size() - 12] = 2; // entries
  write("shared.npz", shared);
  EXPECT_THAT(fault("{kind: arrays, path: " + folder.string() + "/shared.npz}", {{"x", plan::F32, {3}}}),
              HasSubstr("entries share their bytes"));
}

TEST_F(DataTest, CharsAreMinGptsCharDataset) {
  // Vocabulary of "hello world", sorted: ' '=0 d=1 e=2 h=3 l=4 o=5 r=6 w=7
  std::string path = write("t.txt", "hello world");
  std::vector<Field> fields = {{"ids", plan::I64, {4}}, {"labels", plan::I64, {4}, true}};
  DataSource source = opened("{kind: chars, path: " + path + ", block: 4}", fields);
  EXPECT_EQ(source.vocabulary, " dehlorw");
  EXPECT_EQ(source.train->size(), 11 - 4); // len(data) - block_size
  EXPECT_THAT(taken<int64_t>(*source.train, 0, {0, 6}), ElementsAre(3, 2, 4, 4, 7, 5, 6, 4));
  EXPECT_THAT(taken<int64_t>(*source.train, 1, {0, 6}), ElementsAre(2, 4, 4, 5, 5, 6, 4, 1));
  EXPECT_EQ(source.evaluation, nullptr);
  EXPECT_EQ(opened("{kind: chars, path: " + path + ", truncate: 6}", fields).train->size(), 2);
  EXPECT_THAT(fault("{kind: chars, path: " + path + ", block: 8}", fields), HasSubstr("block is 8"));
  EXPECT_THAT(fault("{kind: chars, path: " + path + ", truncate: 4}", fields), HasSubstr("too few"));
  fields[0].upperBound = 5;
  EXPECT_THAT(fault("{kind: chars, path: " + path + "}", fields), HasSubstr("8 different characters"));
}

TEST_F(DataTest, CharsSplitAndCountCodePoints) {
  std::string path = write("t.txt", "a\xc3\xa9"
                                    "b\xe2\x82\xac"
                                    "ab\xc3\xa9"
                                    "aba"); // aéb€abéaba
  DataSource source = opened("{kind: chars, path: " + path + ", train_split: 0.6}", {{"ids", plan::I32, {2}}});
  EXPECT_EQ(source.vocabulary, "ab\xc3\xa9\xe2\x82\xac");
  EXPECT_EQ(source.train->size(), 6 - 2);
  ASSERT_NE(source.evaluation, nullptr);
  EXPECT_EQ(source.evaluation->size(), 4 - 2);
  EXPECT_THAT(taken<int32_t>(*source.evaluation, 0, {0}), ElementsAre(2, 0));
  write("t.txt", "ab\xff");
  EXPECT_THAT(fault("{kind: chars, path: " + path + "}", {{"ids", plan::I32, {2}}}), HasSubstr("byte 2 is not UTF-8"));
}

TEST_F(DataTest, TokensAreBlocks) {
  std::string path = write("t.bin", bytesOf<uint16_t>({0, 1, 2, 3, 4, 5, 6, 7}));
  std::vector<Field> fields = {
      {"ids", plan::I64, {3}}, {"attention_mask", plan::I64, {3}}, {"labels", plan::I64, {3}, true}};
  DataSource source = opened("{kind: tokens, path: " + path + "}", fields);
  EXPECT_EQ(source.train->size(), 2);
  EXPECT_THAT(taken<int64_t>(*source.train, 0, {1}), ElementsAre(3, 4, 5));
  EXPECT_THAT(taken<int64_t>(*source.train, 1, {1}), ElementsAre(1, 1, 1));
  EXPECT_THAT(taken<int64_t>(*source.train, 2, {1}), ElementsAre(4, 5, 6));
}

// Names that only contain a known one, and a second input of unknown content, are not guessed at.
TEST_F(DataTest, InputsWithoutDataAreFilledAsToldOrByExactNames) {
  const std::string path = write("t.bin", bytesOf<uint16_t>({0, 1, 2, 3, 4, 5, 6, 7}));
  auto yaml = [&](const std::string &fill) { return "{kind: tokens, path: " + path + ", fill: {" + fill + "}}"; };
  auto with = [](const std::string &name) {
    return std::vector<Field>{{"ids", plan::I64, {3}}, {name, plan::I64, {3}}};
  };
  const std::map<std::string, std::array<int64_t, 3>> known = {
      {"attention_mask", {1, 1, 1}}, {"token_type_ids", {0, 0, 0}}, {"position_ids", {0, 1, 2}},
      {"cache_position", {0, 1, 2}}, {"segment_ids", {1, 1, 1}},    {"document_ids", {1, 1, 1}},
      {"seq_idx", {1, 1, 1}}};
  for (const auto &[name, values] : known)
    EXPECT_THAT(taken<int64_t>(*opened(yaml(""), with(name)).train, 1, {1}), testing::ElementsAreArray(values)) << name;
  EXPECT_EQ(opened(yaml(""), with("position_ids")).filled, "{position_ids: positions}");
  for (const char *name :
       {"composition_ids", "mask_token", "speaker_ids", "position_ids_2", "decoder_attention_mask"}) {
    EXPECT_THAT(fault(yaml(""), with(name)),
                HasSubstr("does not say what input 'ids' takes: write `fill: {ids: WORD}`"));
    EXPECT_THAT(fault(yaml("ids: tokens"), with(name)), HasSubstr(fmt::format("write `fill: {{{}: WORD}}`", name)));
    const DataSource told = opened(yaml(fmt::format("{}: zeros", name)), with(name));
    EXPECT_THAT(taken<int64_t>(*told.train, 0, {1}), ElementsAre(3, 4, 5));
    EXPECT_THAT(taken<int64_t>(*told.train, 1, {1}), ElementsAre(0, 0, 0));
    EXPECT_EQ(told.filled, fmt::format("{{{}: zeros}}", name));
  }
  // What the recipe says comes before the name.
  EXPECT_THAT(taken<int64_t>(*opened(yaml("position_ids: tokens, ids: tokens"), with("position_ids")).train, 1, {1}),
              ElementsAre(3, 4, 5));
  EXPECT_THAT(fault(yaml("ids: mask"), with("position_ids")), HasSubstr("fills a mask of [positions, positions]"));
  EXPECT_THAT(fault(yaml("ids: noise"), with("position_ids")), HasSubstr("'noise' is not known"));
  std::vector<Field> few = with("position_ids");
  few[1].upperBound = 2;
  const DataSource source = opened(yaml(""), few);
  std::vector<std::byte> bytes(24);
  EXPECT_THAT(source.train->fill(1, std::array<int64_t, 1>{0}, bytes.data()).message(),
              HasSubstr("number 2 at position 2 is outside of the model's 2 (position_ids)"));
}

TEST_F(DataTest, ArraysWithoutAnInputFillIt) {
  const std::string path =
      write("x.npz", zip("ids.npy", npy("<i8", "(2, 3)", bytesOf<int64_t>({5, 6, 7, 8, 9, 10})), false));
  const std::vector<Field> fields = {
      {"ids", plan::I64, {3}}, {"position_ids", plan::I32, {1, 3}}, {"scale", plan::F32, {2}}};
  auto yaml = [&](const std::string &fill) { return "{kind: arrays, path: " + path + ", fill: {" + fill + "}}"; };
  const DataSource source = opened(yaml("scale: ones"), fields);
  EXPECT_EQ(source.filled, "{position_ids: positions, scale: ones}");
  EXPECT_THAT(taken<int64_t>(*source.train, 0, {1}), ElementsAre(8, 9, 10));
  EXPECT_THAT(taken<int32_t>(*source.train, 1, {1}), ElementsAre(0, 1, 2));
  EXPECT_THAT(taken<float>(*source.train, 2, {0, 1}), ElementsAre(1, 1, 1, 1));
  EXPECT_THAT(fault(yaml(""), fields),
              HasSubstr("has no array 'scale' for the input of that name; it has: ids; or write `fill: "
                        "{scale: WORD}` into the recipe's `data`"));
  EXPECT_THAT(fault(yaml("scale: tokens"), fields), HasSubstr("has no array 'scale'"));
}

TEST_F(DataTest, Cifar10ReadsRecords) {
  std::string record(1 + 3072, '\0');
  record[0] = 7;
  record[1] = static_cast<char>(255);
  write("data_batch_1.bin", record + record);
  record[0] = 2;
  write("test_batch.bin", record);
  std::vector<Field> fields = {
      {"image", plan::F32, {3, 32, 32}}, {"labels", plan::I64, {}, true}, {"hot", plan::F32, {10}, true}};
  DataSource source = opened("{kind: cifar10, path: " + folder.string() + "}", fields);
  EXPECT_EQ(source.train->size(), 2);
  ASSERT_NE(source.evaluation, nullptr);
  EXPECT_EQ(taken<float>(*source.train, 0, {1})[0], 1.0f);
  EXPECT_THAT(taken<int64_t>(*source.evaluation, 1, {0}), ElementsAre(2));
  EXPECT_EQ(taken<float>(*source.train, 2, {0})[7], 1.0f);
  write("data_batch_1.bin", "short");
  EXPECT_THAT(fault("{kind: cifar10, path: " + folder.string() + "}", fields), HasSubstr("not a CIFAR-10 binary file"));
}

TEST_F(DataTest, SyntheticIsBoundedAndRepeatable) {
  std::vector<Field> fields = {{"ids", plan::I64, {64}, false, 5}, {"x", plan::F32, {64}}};
  DataSource a = opened("{kind: synthetic, samples: 10}", fields), b = opened("{kind: synthetic, samples: 10}", fields);
  EXPECT_EQ(a.train->size(), 10);
  std::vector<int64_t> ids = taken<int64_t>(*a.train, 0, {3});
  EXPECT_EQ(ids, taken<int64_t>(*b.train, 0, {3}));
  EXPECT_NE(ids, taken<int64_t>(*a.train, 0, {4}));
  EXPECT_THAT(ids, testing::Each(testing::AllOf(testing::Ge(0), testing::Lt(5))));
  EXPECT_EQ(std::set<int64_t>(ids.begin(), ids.end()).size(), 5u);
}

TEST(Settings, FaultsAreNamed) {
  EXPECT_THAT(fault("{kind: images, path: x}", {{"x", plan::F32, {1}}}), HasSubstr("x: cannot be read"));
  EXPECT_THAT(fault("{kind: arrays}", {{"x", plan::F32, {1}}}), HasSubstr("needs a path"));
  EXPECT_THAT(fault("", {{"x", plan::F32, {1}}}), HasSubstr("names no training data"));
  EXPECT_THAT(fault("{kind: chars, block: many}", {{"x", plan::F32, {1}}}), HasSubstr("'block'"));
}

} // namespace
} // namespace cleave::runtime
