// The layouts in which a value exists so far, while a function is walked in order. A value is resharded at the first
// use that needs it, once for each layout, from the version that costs the fewest bytes.
//
//   %g : [{},{}] partial(dp)      its own layout
//   use 1 wants [{dp},{}]         dist.reshard (a reduce-scatter), remembered
//   use 2 wants [{},{}]           dist.reshard from the second version (an all-gather), not another reduction
//
// Two values are different: what comes from little (constants, iota, broadcasts, elementwise work on them) is computed
// again in the layout that is wanted instead of being cut, or where what it is made from moves for fewer bytes; and a
// parameter that was gathered in the forward pass is gathered again in the backward pass, so that the whole of it does
// not stay alive.
#pragma once
#include "compiler/partition/layouts.h"

namespace cleave::partition {

class LayoutVersions {
public:
  // `gathersAgain`: what a phase gathered of a split value is for that phase alone, as with parameters.
  LayoutVersions(const dist::Mesh &mesh, bool gathersAgain) : mesh(mesh), gathersAgain(gathersAgain) {}

  void define(mlir::Value value, dist::Sharding layout);
  bool known(mlir::Value value) const { return versions.contains(value); }
  // The layout in which the value was produced.
  const dist::Sharding &layout(mlir::Value value) const { return versions.find(value)->second.front().layout; }
  // The layout for a use in `phase` that does not ask for one: the last one it was brought to, if any.
  const dist::Sharding &latest(mlir::Value value) const { return versions.find(value)->second.back().layout; }
  // Still a partial sum in every version.
  bool pending(mlir::Value value) const;
  // Bytes that one device would send.
  double price(mlir::Value value, const dist::Sharding &wanted, Phase phase) const;
  // The value as `wanted`, for use by `user`; what has to be built is built before it.
  mlir::Value get(mlir::Value value, const dist::Sharding &wanted, mlir::Operation *user);

private:
  struct Version {
    mlir::Value value;
    dist::Sharding layout;
    Phase phase; // that made it
  };
  bool usable(const Version &version, const dist::Sharding &wanted, Phase phase, mlir::Value value) const;
  const Version *cheapest(mlir::Value value, const dist::Sharding &wanted, Phase phase) const;
  double reshardPrice(mlir::Value value, const dist::Sharding &wanted, Phase phase) const;
  // Made from little: cheaper to compute in part than to cut.
  bool isGenerated(mlir::Value value) const;
  // Bytes that one device would send to compute a generated value, or a broadcast, again in the wanted layout. Infinite
  // for others, and where the operation cannot take that layout.
  double priceAgain(mlir::Value value, const dist::Sharding &wanted, Phase phase) const;
  mlir::Value regenerate(mlir::Value value, const dist::Sharding &wanted, mlir::Operation *user);
  mlir::Value spread(mlir::Value value, const dist::Sharding &layout, const dist::Axes &axes, mlir::Operation *user);

  const dist::Mesh &mesh;
  bool gathersAgain;
  llvm::DenseMap<mlir::Value, llvm::SmallVector<Version, 1>> versions;
  mutable llvm::DenseMap<mlir::Value, bool> generated; // what isGenerated() has found
};

// Records split and layouts on an operation (layouts.h).
void annotate(mlir::Operation *op, const dist::FactorSharding &split, llvm::ArrayRef<dist::Sharding> results);

} // namespace cleave::partition
