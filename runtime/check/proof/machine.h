// Runs the commands of a plan on symbols: one device of each program stands for all that run it, its mesh coordinates
// are variables. What every command reads is what the writes before it left in the arena.
//
// Programs run until they need what another one has not sent yet. Of an action, each lane's commands run in issue order
// and after the events that they wait for, in one of the orders that this leaves: the static verifier has shown that no
// two commands that touch the same bytes may run in another one (runtime/plan/verify/verify.h).
#pragma once
#include "graph.pb.h"
#include "runtime/base/sharding/mesh.h"
#include "runtime/check/proof/memory.h"
#include "runtime/check/proof/operations.h"
#include "runtime/plan/image_shape.h"
#include "runtime/plan/lane_cursor.h"
#include <deque>
#include <functional>
#include <optional>
#include <tuple>

namespace cleave::proof {

template <typename Field> std::vector<int64_t> listOf(const Field &field) { return {field.begin(), field.end()}; }

// A step of the proof that is missing, and where.
struct Gap {
  std::string op, tensor, why;
};

class Machine {
public:
  Machine(const plan::Plan &plan, const dist::Mesh &mesh, Store &store);

  // As the plan is loaded: persistent tensors hold their parts of `initial(parameter)`, a term of its global shape.
  void load(const std::function<Term(const plan::Parameter &)> &initial);
  // All programs, one routine each. Throws Unproved; `where` then says in which command.
  void run(const std::string &routine);
  Gap where() const;

  int programs() const { return static_cast<int>(ranks.size()); }
  // What a device's block of a persistent tensor holds where the tensor is `whole`: its part, and zeros in the padding.
  Term block(int program, const plan::Parameter &parameter, const Tensor &whole);
  // The term that lies in a buffer now.
  Term read(int program, const plan::Buffer &buffer);
  // The command that first wrote a value of this definition: "'h.0.attn' (contract), fragment 'final'".
  std::string firstCommand(Definition definition) const;
  // Inputs and host scalars as terms, the same for the reference graph.
  static Term input(Store &store, const std::string &name, int64_t microbatch, const std::vector<Index> &at);
  static Term hostScalar(Store &store, const plan::HostScalar &scalar, int64_t microbatch,
                         const std::vector<Index> &at);

private:
  // This device's part of a persistent tensor or of an input: where it begins in each dimension.
  std::vector<Index> begin(int program, const google::protobuf::RepeatedPtrField<plan::DimSharding> &dims,
                           const std::vector<int64_t> &local);
  std::vector<int64_t> localShape(const std::vector<int64_t> &shape,
                                  const google::protobuf::RepeatedPtrField<plan::DimSharding> &dims) const;
  struct Message {
    plan::DType dtype;
    std::vector<int64_t> shape;
    Term value;
    int tag;
  };
  struct Parcel { // to or from another program
    int program;
    int32_t channel;
    Message message;
  };
  struct Sum {
    size_t needed; // of the effect
    Term each;
  };
  // One run of an action, noted: what it found, left, received and sent, of its microbatch.
  struct Run {
    Atom microbatch{};
    const plan::Action *action = nullptr;
    Effect effect{};
    std::vector<Parcel> received{}, sent{};            // in order
    std::map<Definition, Store::Original> originals{}; // of this run
    std::vector<std::optional<Sum>> sums{};            // of each cell that it leaves: the cell that was added to
    bool isKept = true;                                // when it ends
  };
  struct Rank {
    int number = 0;
    const plan::Program *program = nullptr;
    Memory memory;
    const plan::Routine *routine = nullptr;
    int action = 0; // the one that runs
    bool isFilled = false;
    runtime::LaneCommands lanes{};                // its commands
    std::array<size_t, runtime::numLanes> done{}; // how many, of each lane
    std::optional<Run> recording{};
    std::map<int, std::vector<Run>> runs{}; // by fragment
  };
  struct Meeting { // programs that wait in a collective
    std::map<int, std::vector<Tensor>> inputs;
    std::map<int, int> left; // programs that have taken the result
  };

  bool advance(Rank &rank); // false: it waits, or is done

  // replay.cpp
  enum class Replay : int8_t { Done, Waits, Unknown };
  Replay replay(Rank &rank);
  bool isLike(Rank &rank, const Run &run, std::vector<Cell> &left, std::vector<Parcel> &sent);
  static Store::Originals originalsOf(const Run &run) {
    return [&run](Definition leaf) { return run.originals.at(leaf); };
  }
  bool isStandIn(Term t) const { return store.kindOf(t) == Kind::Leaf && store.hasStandIns(t); }
  void startRecording(Rank &rank);
  void stopRecording(Rank &rank);
  void finishRecording(Rank &rank);
  Cell moved(const Rank &rank, Cell cell, const plan::Action &from, const plan::Action &to) const;

  void fillInputs(Rank &rank, const plan::Fragment &fragment, const plan::Action &action);
  bool execute(Rank &rank, const plan::Command &command);
  void launch(Rank &rank, const plan::Launch &launch);
  void contract(Rank &rank, const plan::Contract &contract);
  void groupedContract(Rank &rank, const plan::GroupedContract &product);
  void copy(Rank &rank, const plan::Copy &copy);
  void convolution(Rank &rank, const plan::Convolution &convolution);
  void pool(Rank &rank, const plan::Pool &pool);
  void attention(Rank &rank, const plan::Attention &attention);
  bool collective(Rank &rank, const plan::Collective &collective);
  Tensor exchanged(Rank &rank, const plan::Collective &collective, int part, const std::map<int, Tensor> &from);
  bool transfer(Rank &rank, const plan::Transfer &transfer);
  void send(Rank &rank, Parcel parcel);

  Place placeOf(Rank &rank, const plan::Buffer &buffer) const;
  Tensor tensor(Rank &rank, const plan::Buffer &buffer);
  Tensor tensor(Rank &rank, const plan::Buffer &buffer, const std::vector<int64_t> &shape,
                const std::vector<int64_t> &strides);
  void store_(Rank &rank, const plan::Buffer &buffer, Term value);
  void write(Rank &rank, const plan::Buffer &buffer, const runtime::ImageShape &shape, Term value);
  void note(Term value);
  // Unproved: a result lies over an operand.
  static void keepApart(const plan::Buffer &input, const plan::Buffer &output);
  void keepApart(const plan::Command &command);
  Index affine(Rank &rank, const plan::AffineOfCoordinate &affine);
  Index coordinate(const Rank &rank, const std::string &axis);
  Index memberNumber(const Rank &rank, const google::protobuf::RepeatedPtrField<std::string> &axes);
  // Serialized in the plan; `what` computes so.
  const plan::Graph &graphOf(const std::string &operations, const std::string &what);
  Tensor activated(Rank &rank, const plan::Contract &product);
  // The results of a graph of one function, whose inputs `values` has.
  std::vector<Tensor> compute(const plan::Graph &graph, const std::function<TensorType(int32_t)> &typeOf,
                              std::map<int32_t, Tensor> values, const std::vector<Index> &scalars);

  const plan::Plan &plan;
  const dist::Mesh &mesh;
  Store &store;
  Operations operations;
  std::vector<Rank> ranks;
  std::map<const std::string *, plan::Graph> graphs;                          // by where the plan has them
  std::map<std::pair<int, int>, std::map<int, std::deque<Message>>> messages; // by source, target; by channel
  std::map<std::pair<std::string, int64_t>, Meeting> meetings;                // by axes, number
  std::map<std::pair<int, std::string>, int64_t> met;
  std::map<Definition, std::string> firstBy;
  using Overwriting =
      std::tuple<int, int64_t, int, int, std::vector<Index>>; // kernel, extent, result, operand, scalars
  std::map<Overwriting, bool> inPlace;
  const plan::Fragment *nowFragment = nullptr;
  const plan::Command *nowCommand = nullptr;
  int nowSlot = 0;
  bool isPatient = true; // it waits for all that a known action receives, and does not begin it before
  int64_t standIns = 0;
};

} // namespace cleave::proof
