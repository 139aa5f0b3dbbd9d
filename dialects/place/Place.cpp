#include "dialects/place/Place.h"

using namespace mlir;

#include "dialects/place/PlaceDialect.cpp.inc"
#include "dialects/place/PlaceEnums.cpp.inc"
#define GET_ATTRDEF_CLASSES
#include "dialects/place/PlaceAttrs.cpp.inc"

namespace cleave::place {
LogicalResult PlaceDialect::verifyOperationAttribute(Operation *op, NamedAttribute attribute) {
  static const OwnedAttributeRule rules[] = {
      owned(atAttr, isAny, "an operation"),
      owned(productAttr, isAny, "an operation"),
      owned(ruleAttr, isAny, "an operation"),
      owned(nodeAttr, isAny, "an operation"),
      owned(decidedFactorsAttr, isAny, "an operation"),
      owned(programAttr, isFunction, "a function"),
      owned(regionAttr, isFunction, "a function"),
      owned(slotsAttr, isFunction, "a function"),
      owned(fragmentAttr, isFunction, "a function"),
      owned(aheadAttr, isFunction, "a function"),
      owned(nodesAttr, isModule, "a module"),
      owned(programsAttr, isAny, "a persistent tensor"),
      owned(routinesAttr, isModule, "a module"),
  };
  return verifyOwned(op, attribute, rules);
}
LogicalResult PlaceDialect::verifyRegionArgAttribute(Operation *op, unsigned, unsigned, NamedAttribute attribute) {
  return verifyOwned(op, attribute, owned(keptAttr, isFunction, "an argument or result"));
}
LogicalResult PlaceDialect::verifyRegionResultAttribute(Operation *op, unsigned, unsigned, NamedAttribute attribute) {
  return verifyOwned(op, attribute, owned(keptAttr, isFunction, "an argument or result"));
}

void PlaceDialect::initialize() {
  addAttributes<
#define GET_ATTRDEF_LIST
#include "dialects/place/PlaceAttrs.cpp.inc"
      >();
}

LogicalResult AtAttr::verify(function_ref<InFlightDiagnostic()> emitError, std::optional<Phase> phase,
                             std::optional<int64_t> stage, std::optional<int64_t>, std::optional<int64_t> segment,
                             bool recompute, std::optional<int64_t> recomputed, std::optional<int64_t>) {
  if (stage && *stage < 0) return emitError() << "stage " << *stage << " is negative";
  if (recompute && !segment) return emitError() << "recompute needs a segment";
  if (recomputed && phase != Phase::Backward) return emitError() << "recomputed is for the backward phase";
  return success();
}

Place of(Operation *op) {
  AtAttr attribute = atAttr.of(op);
  if (!attribute) return {};
  return {attribute.getPhase(),     attribute.getStage(),      attribute.getOrigin(), attribute.getSegment(),
          attribute.getRecompute(), attribute.getRecomputed(), attribute.getChunk()};
}

void Place::set(Operation *op) const {
  if (*this == Place())
    atAttr.remove(op);
  else
    atAttr.set(op, AtAttr::get(op->getContext(), phase, stage, origin, segment, recompute, recomputed, chunk));
}

Phase phaseOf(Operation *op) { return of(op).phase.value_or(Phase::Forward); }
bool hasPhase(Operation *op, Phase phase) { return of(op).phase == phase; }
std::optional<int64_t> stageOf(Operation *op) { return of(op).stage; }
bool isRecomputed(Operation *op) { return of(op).recomputed.has_value(); }

void setPhase(Operation *op, Phase phase) {
  Place place = of(op);
  place.phase = phase;
  place.set(op);
}
void setStage(Operation *op, std::optional<int64_t> stage) {
  Place place = of(op);
  place.stage = stage;
  place.set(op);
}
void copy(Operation *from, Operation *to) {
  Place place = of(from);
  if (place.phase == Phase::Forward) place.origin.reset();
  place.set(to);
}

void Stamp::notifyOperationInserted(Operation *op, OpBuilder::InsertPoint) {
  if (onto == All) nodeAttr.remove(op);
  if (onto == All || !of(op).phase) setPhase(op, phase);
}

} // namespace cleave::place
