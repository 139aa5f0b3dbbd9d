#include "compiler/codegen/codegen.h"
#include "compiler/codegen/commands/command_building.h"
#include "compiler/codegen/commands/command_list.h"
#include "compiler/codegen/commands/strided_view.h"
#include "compiler/codegen/memory/memory_plan.h"
#include "compiler/codegen/memory/persistent_layout.h"
#include "compiler/codegen/memory/slot_layout.h"
#include "runtime/plan/routine.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/SetVector.h"

namespace cleave::codegen {
#define GEN_PASS_DEF_PLANMEMORY
#include "compiler/codegen/Passes.h.inc"

using namespace mlir;
namespace {

using place::Phase;

// One buffer: a root value, and the roots that share it.
struct Storage {
  Value root;
  int64_t bytes = 0;
  int64_t first = 0, last = 0;
  int64_t parent = -1, offsetInParent = 0; // shares the parent's buffer
  PitchedRows rows = {};                   // there, where it is not dense
  int64_t fixed = -1;                      // byte offset in the persistent part
  FlatSymbolRefAttr home = {};             // the persistent tensor that dies into it
};

class FragmentMemory {
public:
  FragmentMemory(func::FuncOp function, PersistentLayout &persistent, const SlotLayout &slots)
      : function(function), persistent(persistent), slots(slots), list(function) {}

  LogicalResult shareBuffers() {
    if (failed(share())) return failure();
    if (inRows.empty()) return success();
    laysRows = true;
    const int64_t before = boundMemory(intervalsOf(scratchOwners())).bytes;
    do
      if (failed(share())) return failure();
    while (!keepsBound(before));
    return success();
  }

  // A store that remains a copy waits for the collective whose result it copies, and for what is sent of the tensor
  // that it writes over.
  void makeStoresWait() {
    for (Operation &op : function.getOps()) {
      auto store = dyn_cast<plan::StoreOp>(op);
      if (!store || store.getInPlace()) continue;
      SmallVector<int64_t> events;
      auto waitFor = [&](Operation *other) {
        if (other && streamOf(other) != 0) events.push_back(*plan::recordAttr.of(other));
      };
      waitFor(bufferViewOf(store.getValue()).root.getDefiningOp());
      for (Value read : reads.lookup(store.getParamAttr()))
        for (OpOperand *use : list.usesOf(read)) waitFor(use->getOwner());
      if (!events.empty()) plan::waitAttr.set(&op, events);
    }
  }

  // Only the copy that takes a value there writes it to the host's memory.
  LogicalResult checkStoresToHost() {
    for (auto store : function.getOps<plan::StoreOp>())
      if (auto slot = persistent.ofParam(store.getParamAttr());
          slot && slot->offset >= runtime::hostMemory && !store.getInPlace())
        return store.emitOpError("puts a value into the host's memory that no copy has taken there");
    return success();
  }

  MemoryPlan layOut() {
    const std::vector<size_t> away = scratchOwners(/*onHost=*/true);
    scratch = scratchOwners();
    MemoryPlan host = planMemory(intervalsOf(away));
    MemoryPlan plan = planMemory(intervalsOf(scratch));
    for (size_t i = 0; i < away.size(); ++i)
      storages[away[i]].fixed = runtime::hostMemory + slots.hostEnd() + host.offsets[i];
    hostScratch = host.peak;
    for (size_t i = 0; i < scratch.size(); ++i) storages[scratch[i]].fixed = plan.offsets[i] + slots.end();
    return plan;
  }

  int64_t hostPeak() const { return hostScratch; } // of the host's memory

  void annotate() {
    Builder builder(function.getContext());
    auto offsetOf = [&](Value value) {
      BufferView place = bufferViewOf(value);
      auto [owner, offset] = ownerOf(index.lookup(place.root));
      return storages[owner].fixed + offset + place.offset;
    };
    for (BlockArgument argument : function.getArguments())
      plan::offsetAttr.setArg(function, argument.getArgNumber(), offsetOf(argument));
    for (Operation &op : function.getOps()) {
      if (op.getNumResults() == 0) continue;
      SmallVector<int64_t> offsets;
      for (Value result : op.getResults()) offsets.push_back(offsetOf(result));
      plan::offsetsAttr.set(&op, offsets);
      SmallVector<int64_t> rows;
      for (Value result : op.getResults()) {
        const PitchedRows one = isa<plan::ViewOp>(op) ? PitchedRows() : storages[index.lookup(result)].rows;
        rows.append({one.row, one.pitch});
      }
      if (llvm::any_of(rows, [](int64_t number) { return number != 0; })) plan::rowsAttr.set(&op, rows);
    }
  }

  // The scratch that is alive at `position`, by what it holds.
  void describe(int64_t position, MemoryReport &report) const {
    for (size_t i : scratch) {
      const Storage &storage = storages[i];
      if (position < storage.first || position > storage.last) continue;
      Operation *definition = storage.root.getDefiningOp();
      const std::optional<Phase> phase = definition ? place::of(definition).phase : Phase::Forward;
      int64_t bytes = alignUp(std::max<int64_t>(storage.bytes, 1));
      bool feedsUpdate = llvm::any_of(list.usesOf(storage.root),
                                      [](OpOperand *use) { return place::hasPhase(use->getOwner(), Phase::Update); });
      if (phase == Phase::Forward)
        report.activations += bytes;
      else if (phase == Phase::Backward && feedsUpdate)
        report.gradients += bytes;
    }
  }

private:
  LogicalResult share() {
    for (;;) {
      if (failed(collect())) return failure();
      for (auto product : function.getOps<plan::ContractCommandOp>()) addInPlace(product);
      for (Operation &op : function.getOps())
        if (auto store = dyn_cast<plan::StoreOp>(op)) storeInPlace(store);
      for (Operation &op : function.getOps()) {
        if (auto concat = dyn_cast<plan::ConcatCommandOp>(op)) concatInPlace(concat);
        if (auto launch = dyn_cast<plan::LaunchOp>(op)) launchInPlace(launch);
        if (auto collective = dyn_cast<plan::CollectiveCommandOp>(op)) reduceInPlace(collective);
      }
      if (moveHome()) return success();
    }
  }

  // Owners of buffers to be laid out: in the arena, or in the host's memory.
  std::vector<size_t> scratchOwners(bool onHost = false) const {
    std::vector<size_t> owners;
    for (size_t i = 0; i < storages.size(); ++i) {
      if (storages[i].parent >= 0 || storages[i].fixed >= 0) continue;
      Operation *definition = storages[i].root.getDefiningOp();
      if ((definition && isEvict(definition)) == onHost) owners.push_back(i);
    }
    return owners;
  }
  std::vector<BufferInterval> intervalsOf(ArrayRef<size_t> owners) const {
    std::vector<BufferInterval> intervals;
    for (size_t i : owners) intervals.push_back({storages[i].bytes, storages[i].first, storages[i].last});
    return intervals;
  }

  // False: more is alive somewhere than before parts lay in rows, and all sharing has to be done again with fewer.
  bool keepsBound(int64_t before) {
    const MemoryBound bound = boundMemory(intervalsOf(scratchOwners()));
    if (bound.bytes <= before) return true;
    const size_t refused = apart.size();
    for (Operation *concat : inRows) {
      const size_t owner = ownerOf(index.lookup(concat->getResult(0))).first;
      if (storages[owner].first <= bound.position && bound.position <= list.position(concat)) apart.insert(concat);
    }
    if (apart.size() == refused) apart.insert(inRows.begin(), inRows.end());
    return false;
  }

  LogicalResult collect() {
    inRows.clear();
    storages.clear(), index.clear(), reads.clear(), overwrites.clear();
    for (Value root : list.rootsInOrder()) {
      Storage storage{root, bytesOf(root.getType()), list.position(root), list.lastUse(root)};
      if (auto offset = slots.offsetOf(root)) {
        storage.fixed = *offset;
      } else if (Operation *definition = root.getDefiningOp()) {
        if (auto read = dyn_cast<onnx::ReadOp>(definition)) {
          auto slot = persistent.ofParam(read.getParamAttr());
          if (!slot) return read.emitOpError("names no onnx.param");
          if (slot->bytes != storage.bytes)
            return read.emitOpError() << "reads " << storage.bytes
                                      << " bytes of a parameter whose part on this device has " << slot->bytes;
          storage.fixed = slot->offset;
          reads[read.getParamAttr()].push_back(root);
        } else if (auto constant = dyn_cast<plan::ConstantCommandOp>(definition)) {
          storage.fixed = persistent.ofConstant(constant);
        }
      } else if (auto host = persistent.ofHostScalar(function, cast<BlockArgument>(root).getArgNumber())) {
        storage.fixed = *host;
      }
      index[root] = storages.size();
      storages.push_back(storage);
    }
    return success();
  }

  std::pair<size_t, int64_t> ownerOf(size_t i) const {
    int64_t offset = 0;
    while (storages[i].parent >= 0) {
      offset += storages[i].offsetInParent;
      i = storages[i].parent;
    }
    return {i, offset};
  }

  // The storage whose whole buffer is this value, if a command of this fragment makes it and it has no fixed place.
  Storage *ownScratch(Value value) {
    BufferView place = bufferViewOf(value);
    Storage &storage = storages[index.lookup(place.root)];
    bool whole = place.offset == 0 && bytesOf(value.getType()) == storage.bytes;
    bool movable = storage.root.getDefiningOp() && storage.parent < 0 && storage.fixed < 0;
    return whole && movable ? &storage : nullptr;
  }

  bool sharesBuffer(Value a, Value b) const { return ownerOf(index.lookup(a)).first == ownerOf(index.lookup(b)).first; }

  // May `result` of `launch` lie where `root` lies? Each operand that looks at root must be paired with the result.
  bool paired(plan::LaunchOp launch, Value root, int64_t result) {
    bool any = false;
    for (OpOperand &operand : launch->getOpOperands()) {
      BufferView place = bufferViewOf(operand.get());
      if (place.root != root) {
        if (sharesBuffer(place.root, root)) return false; // a part of it, read at other places
        continue;
      }
      any = true;
      bool listed = false;
      for (size_t i = 0; i + 1 < launch.getInplace().size(); i += 2)
        listed |= launch.getInplace()[i] == int64_t(operand.getOperandNumber()) && launch.getInplace()[i + 1] == result;
      if (!listed || place.offset != 0) return false;
    }
    return any;
  }

  // A product that is added to a sum lies where that lies: the sum joins it.
  void addInPlace(plan::ContractCommandOp product) {
    if (!product.getSum()) return;
    Storage *sum = ownScratch(product.getSum());
    Storage &result = storages[index.lookup(product.getY())];
    if (!sum || sum->last > list.position(product) || sum->bytes != result.bytes) return;
    sum->parent = int64_t(index.lookup(product.getY()));
    sum->offsetInParent = 0;
    result.first = std::min(result.first, sum->first);
  }

  void storeInPlace(plan::StoreOp store) {
    Storage *storage = ownScratch(store.getValue());
    auto slot = persistent.ofParam(store.getParamAttr());
    if (!storage || !slot || slot->bytes != storage->bytes) return;
    Operation *producer = storage->root.getDefiningOp();
    for (Value read : reads.lookup(store.getParamAttr()))
      for (OpOperand *use : list.usesOf(read)) {
        Operation *reader = use->getOwner();
        auto launch = dyn_cast<plan::LaunchOp>(reader);
        auto product = dyn_cast<plan::ContractCommandOp>(reader);
        const bool adds = product && use->get() == product.getSum() && bufferViewOf(use->get()).offset == 0;
        bool sharesIndex =
            launch ? reader == producer && paired(launch, read, cast<OpResult>(storage->root).getResultNumber())
                   : adds && sharesBuffer(product.getY(), storage->root);
        if (!sharesIndex && list.busyUntil(reader) >= storage->first) return;
      }
    storage->fixed = slot->offset;
    store.setInPlace(true);
    overwrites[store.getParamAttr()] = storage->first;
  }

  // The persistent tensor that the operand reads, where nobody needs its bytes after the launch until another value is
  // made there: the result may take them. Null: none.
  FlatSymbolRefAttr homeFor(plan::LaunchOp launch, Value operand, int64_t result) {
    auto read = bufferViewOf(operand).root.getDefiningOp<onnx::ReadOp>();
    const Storage *storage = ownScratch(launch.getResult(result));
    if (!read || !storage || lostHomes.contains(read.getParamAttr())) return {};
    auto overwrite = overwrites.find(read.getParamAttr());
    auto slot = persistent.ofParam(read.getParamAttr());
    const int64_t here = list.position(launch);
    if (overwrite == overwrites.end() || overwrite->second <= here || !slot || slot->offset >= runtime::hostMemory ||
        slot->bytes != storage->bytes)
      return {};
    for (Value root : reads.lookup(read.getParamAttr()))
      for (OpOperand *use : list.usesOf(root))
        if (list.busyUntil(use->getOwner()) > here || (use->getOwner() == launch && !paired(launch, root, result)))
          return {};
    return read.getParamAttr();
  }

  // Puts values into the persistent tensors that die into them. False: one of them would live too long there, and all
  // sharing has to be done again without it.
  bool moveHome() {
    bool fits = true;
    for (Storage &storage : storages) {
      if (!storage.home || storage.parent >= 0) continue;
      if (storage.last < overwrites.lookup(storage.home))
        storage.fixed = persistent.ofParam(storage.home)->offset;
      else
        fits = !lostHomes.insert(storage.home).second && fits;
    }
    return fits;
  }

  void concatInPlace(plan::ConcatCommandOp concat) {
    auto type = cast<RankedTensorType>(concat.getY().getType());
    int64_t target = index.lookup(concat.getY());
    Storage &whole = storages[target];
    // In a persistent tensor its lifetime cannot begin earlier: others still read that. A place in a slot is its own.
    if (whole.fixed >= 0 && !slots.offsetOf(concat.getY())) return;
    if (llvm::any_of(type.getShape().take_front(concat.getAxis()), [](int64_t size) { return size != 1; }))
      return concatInRows(concat, whole);
    int64_t offset = 0;
    for (Value part : concat.getXs()) {
      Storage *storage = ownScratch(part);
      // A part that another stream still reads, a copy to the host say, would lie where the other parts are being
      // copied to.
      auto isStillRead = [&](OpOperand *use) {
        return streamOf(use->getOwner()) != 0 &&
               list.busyUntil(use->getOwner()) >= list.position(concat.getOperation());
      };
      if (storage && offset % bufferAlignment == 0 && llvm::none_of(list.usesOf(storage->root), isStillRead)) {
        storage->parent = target;
        storage->offsetInParent = offset;
        whole.first = std::min(whole.first, storage->first);
        whole.last = std::max(whole.last, storage->last);
      }
      offset += bytesOf(part.getType());
    }
  }

  // Parts that nobody else reads, of commands that can write them between the others.
  void concatInRows(plan::ConcatCommandOp concat, Storage &whole) {
    if (apart.contains(concat)) return;
    constexpr int64_t vector = 16; // bytes that libraries for GPUs move at once
    auto bytesOfRow = [&](Value value) {
      auto type = cast<RankedTensorType>(value.getType());
      int64_t bytes = elementBytes(type.getElementType());
      for (int64_t size : type.getShape().drop_front(concat.getAxis())) bytes *= size;
      return bytes;
    };
    const int64_t element = elementBytes(concat.getType().getElementType()), pitch = bytesOfRow(concat.getY());
    int64_t offset = 0;
    for (Value part : concat.getXs()) {
      Storage *storage = ownScratch(part);
      const int64_t row = bytesOfRow(part);
      const PitchedRows rows{row / element, pitch / element};
      if (storage && storage->bytes > 0 && list.usesOf(storage->root).size() == 1 &&
          (offset | row | pitch) % vector == 0 && canWritePitched(storage->root, rows)) {
        inRows.insert(concat);
        if (laysRows) {
          storage->parent = int64_t(index.lookup(concat.getY()));
          storage->offsetInParent = offset;
          storage->rows = rows;
          whole.first = std::min(whole.first, storage->first);
        }
      }
      offset += row;
    }
  }

  void launchInPlace(plan::LaunchOp launch) {
    ArrayRef<int64_t> pairs = launch.getInplace();
    llvm::DenseSet<Value> taken; // results that lie in an operand's buffer: the other operands need their own
    llvm::DenseSet<Attribute> given;
    for (size_t i = 0; i + 1 < pairs.size(); i += 2) {
      auto home = homeFor(launch, launch.getInputs()[pairs[i]], pairs[i + 1]);
      if (!home || taken.contains(launch.getResult(pairs[i + 1])) || !given.insert(home).second) continue;
      ownScratch(launch.getResult(pairs[i + 1]))->home = home;
      taken.insert(launch.getResult(pairs[i + 1]));
    }
    for (size_t i = 0; i + 1 < pairs.size(); i += 2) {
      Storage *result = ownScratch(launch.getResult(pairs[i + 1]));
      Value operand = launch.getInputs()[pairs[i]];
      Storage *input = ownScratch(operand);
      if (!result || !input || result->bytes != input->bytes || taken.contains(result->root)) continue;
      if (input->last != list.position(launch)) continue;
      if (!paired(launch, input->root, pairs[i + 1])) continue;
      // The operand joins the result, so that a later result can take over the whole chain.
      input->parent = index.lookup(result->root);
      input->offsetInParent = 0;
      result->first = std::min(result->first, input->first);
      result->home = input->home;
      taken.insert(result->root);
    }
  }

  // An all-reduce may work in its operand's buffer when nobody else reads that operand.
  void reduceInPlace(plan::CollectiveCommandOp collective) {
    if (collective.getOp() != dist::Collective::AllReduce) return;
    for (auto [operand, reduced] : llvm::zip(collective.getXs(), collective.getYs())) {
      Storage *result = ownScratch(reduced);
      Storage *input = ownScratch(operand);
      if (!result || !input || list.usesOf(input->root).size() != 1) continue;
      if (input->last > list.busyUntil(collective)) continue; // a part of it is still read
      input->parent = index.lookup(result->root);
      input->offsetInParent = 0;
      result->first = std::min(result->first, input->first);
      result->home = input->home;
    }
  }

  func::FuncOp function;
  PersistentLayout &persistent;
  const SlotLayout &slots;
  CommandList list;
  std::vector<Storage> storages;
  llvm::DenseMap<Value, size_t> index;
  llvm::DenseMap<Attribute, SmallVector<Value, 1>> reads; // of a persistent tensor, by its FlatSymbolRefAttr
  llvm::DenseMap<Attribute, int64_t> overwrites;          // where what is stored there in place is made: position
  llvm::DenseSet<Attribute> lostHomes;                    // persistent tensors in which nothing else may lie meanwhile
  std::vector<size_t> scratch;
  bool laysRows = false;                              // parts of concatenations in rows
  llvm::SmallSetVector<Operation *, 8> inRows, apart; // concatenations of which some parts can lie so; those not to
  int64_t hostScratch = 0;
};

struct PlanMemory : impl::PlanMemoryBase<PlanMemory> {
  void runOnOperation() override {
    ModuleOp module = getOperation();
    Builder builder(module.getContext());
    SmallVector<int64_t> persistentBytes, arenaBytes, hostBytes;
    MemoryReport report; // of the fullest program
    for (int64_t program = 0, programs = programCount(module); program < programs; ++program) {
      PersistentLayout persistent;
      if (failed(persistent.layOut(module, program))) return signalPassFailure();
      SlotLayout slots;
      slots.layOut(module, program, persistent.bytes(), persistent.hostBytes());
      int64_t slotBytes = slots.end() - persistent.bytes(), scratch = 0, hostScratch = 0;
      MemoryReport peak = persistent.report();
      peak.activations = slotBytes;
      for (auto function : module.getOps<func::FuncOp>()) {
        if (function.isExternal() || programOf(function) != program) continue;
        FragmentMemory memory(function, persistent, slots);
        if (failed(memory.shareBuffers())) return signalPassFailure();
        memory.makeStoresWait();
        if (failed(memory.checkStoresToHost())) return signalPassFailure();
        MemoryPlan plan = memory.layOut();
        memory.annotate();
        hostScratch = std::max(hostScratch, memory.hostPeak());
        if (plan.peak <= scratch) continue;
        scratch = plan.peak;
        peak = persistent.report();
        peak.activations = slotBytes;
        memory.describe(plan.bound.position, peak);
        peak.workspace = slots.end() + scratch - peak.total();
      }
      persistentBytes.push_back(persistent.bytes());
      hostBytes.push_back(slots.hostEnd() + hostScratch);
      peak.host = hostBytes.back();
      arenaBytes.push_back(slots.end() + scratch);
      if (program == 0 || peak.total() > report.total()) report = peak;
    }
    report.host = *std::max_element(hostBytes.begin(), hostBytes.end()); // another program may have more there
    plan::persistentBytesAttr.set(module, persistentBytes);
    plan::hostBytesAttr.set(module, hostBytes);
    plan::arenaBytesAttr.set(module, arenaBytes);
    auto bytes = [&](StringRef name, int64_t value) {
      return builder.getNamedAttr(name, builder.getI64IntegerAttr(value));
    };
    plan::memoryAttr.set(module, builder.getDictionaryAttr(
                                     {bytes("parameters", report.parameters), bytes("gradients", report.gradients),
                                      bytes("optimizer", report.optimizer), bytes("activations", report.activations),
                                      bytes("workspace", report.workspace), bytes("host", report.host)}));
  }
};

} // namespace
} // namespace cleave::codegen
