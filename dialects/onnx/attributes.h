// The discardable attributes of the onnx dialect (dialects/owned_attribute.h), by what they stand on.
#pragma once
#include "dialects/owned_attribute.h"

namespace cleave::onnx {

// --- arguments and results of functions
inline constexpr OwnedAttribute<llvm::StringRef> nameAttr{"onnx.name"};             // as exported
inline constexpr OwnedAttribute<llvm::ArrayRef<std::string>> dimsAttr{"onnx.dims"}; // names of dimensions; "": none
inline constexpr OwnedAttribute<Mark> labelAttr{"onnx.label"};                      // an input that only the loss reads
inline constexpr OwnedAttribute<int64_t> sampleDimAttr{"onnx.sample_dim"};          // sample_dim.h
inline constexpr OwnedAttribute<mlir::FlatSymbolRefAttr> gradientOfAttr{"onnx.gradient_of"}; // a result: the parameter
// A scalar that the host fills before each step: "learning_rate", "one_minus_power" (1 - base^step), "step". `since`:
// the steps after which the parameter's state began.
inline constexpr OwnedAttribute<llvm::StringRef> hostAttr{"onnx.host"};
inline constexpr OwnedAttribute<double> baseAttr{"onnx.base"};
inline constexpr OwnedAttribute<int64_t> sinceAttr{"onnx.since"}; // and on optimizer state; absent: 0

// --- operations
// Evaluation replaces the operation by its first operand, or by the running statistic.
inline constexpr OwnedAttribute<Mark> dropoutAttr{"onnx.dropout"};
inline constexpr OwnedAttribute<mlir::FlatSymbolRefAttr> batchStatisticAttr{"onnx.batch_statistic"};
// A node Dropout that an adapter brought along: recipe keys that switch dropout off do not mean it.
inline constexpr OwnedAttribute<Mark> adapterDropoutAttr{"onnx.adapter_dropout"};
// Scales or observes tensors of fp8: it lies as its operands do, and for the planner its result is its first operand.
inline constexpr OwnedAttribute<Mark> fp8ScalingAttr{"onnx.fp8_scaling"};
// Its tensors of three and more dimensions have their channels last (compiler/layout).
inline constexpr OwnedAttribute<Mark> channelsLastAttr{"onnx.compute_channels_last"};
// A product of 8 bits for cuBLASLt (codegen/cuda/eight_bit_products.cpp): the summed dimension must lie innermost in
// both operands, everything else at multiples of `onnx::eightBitAlignment` elements.
inline constexpr OwnedAttribute<Mark> kMajorAttr{"onnx.k_major"};

// --- onnx.param
inline constexpr OwnedAttribute<llvm::ArrayRef<std::string>> nodesAttr{"onnx.nodes"}; // that read it
inline constexpr OwnedAttribute<llvm::StringRef> whyAttr{"onnx.why"};                 // it is a parameter, or is not
inline constexpr OwnedAttribute<llvm::StringRef> kindAttr{"onnx.kind"};               // for `inspect`
inline constexpr OwnedAttribute<llvm::ArrayRef<std::string>> foldedFromAttr{"onnx.folded_from"};
inline constexpr OwnedAttribute<llvm::ArrayRef<std::string>> stateKeysAttr{"onnx.state_keys"}; // of the state_dict
inline constexpr OwnedAttribute<llvm::ArrayRef<std::string>> transposedAliasesAttr{"onnx.transposed_aliases"};
inline constexpr OwnedAttribute<mlir::ArrayAttr> piecesAttr{"onnx.pieces"}; // the parameters stacked in it
inline constexpr OwnedAttribute<llvm::StringRef> groupAttr{"onnx.group"};   // of the optimizer, for the report
// The shape without padded entries (compiler/padding), where the type has some: what files and snapshots hold.
inline constexpr OwnedAttribute<llvm::ArrayRef<int64_t>> storedShapeAttr{"onnx.stored_shape"};
// The parameter whose stages of a pipeline hold the tensor, too.
inline constexpr OwnedAttribute<mlir::FlatSymbolRefAttr> besideAttr{"onnx.beside"};
// By kind the places of its optimizer state, as in `init` (compiler/import/weights/optimizer_state.h).
inline constexpr OwnedAttribute<mlir::DictionaryAttr> optimizerStateAttr{"onnx.optimizer_state"};

// --- the module: what import read
inline constexpr OwnedAttribute<llvm::StringRef> pathAttr{"onnx.path"};
inline constexpr OwnedAttribute<llvm::StringRef> producerAttr{"onnx.producer"};
inline constexpr OwnedAttribute<int64_t> irVersionAttr{"onnx.ir_version"};
inline constexpr OwnedAttribute<int64_t> opsetAttr{"onnx.opset"};
inline constexpr OwnedAttribute<llvm::StringRef> digestAttr{"onnx.digest"}; // of the graph without its weights
inline constexpr OwnedAttribute<llvm::StringRef> sourceAttr{"onnx.source"}; // what the import rests on, in words
inline constexpr OwnedAttribute<llvm::ArrayRef<std::string>> tiesAttr{"onnx.ties"};
inline constexpr OwnedAttribute<llvm::ArrayRef<std::string>> sharingAttr{"onnx.sharing"};
inline constexpr OwnedAttribute<llvm::ArrayRef<std::string>> notesAttr{"onnx.notes"};
inline constexpr OwnedAttribute<llvm::ArrayRef<std::string>> exportNotesAttr{"onnx.export_notes"};
inline constexpr OwnedAttribute<llvm::ArrayRef<std::string>> missingFilesAttr{"onnx.missing_files"};
// The folder that an onnx.param's `init` with sources names files of.
inline constexpr OwnedAttribute<llvm::StringRef> checkpointFolderAttr{"onnx.checkpoint_folder"};
// Tensors that are no onnx.param, each {name, kind, why}: constants, and what the exporter lists and the file lacks.
inline constexpr OwnedAttribute<mlir::ArrayAttr> otherTensorsAttr{"onnx.other_tensors"};
// What would change the numbers and the file does not tell (compiler/import/doubts.h): {text, tensors}.
inline constexpr OwnedAttribute<mlir::ArrayAttr> doubtsAttr{"onnx.doubts"};

// --- the module: its training
// Of a training that continues another: the steps that it did. With another recipe than the snapshot's also the `since`
// of each tensor of optimizer state there; state of other parameters begins after `steps_before`.
inline constexpr OwnedAttribute<int64_t> stepsBeforeAttr{"onnx.steps_before"};
inline constexpr OwnedAttribute<mlir::DictionaryAttr> resumedStateAttr{"onnx.resumed_state"};
// The weight of each of several losses, and the node at which the samples of a loss meet (training.h).
inline constexpr OwnedAttribute<mlir::DenseF64ArrayAttr> lossTermsAttr{"onnx.loss_terms"};
inline constexpr OwnedAttribute<llvm::StringRef> lossMeetsAtAttr{"onnx.loss_meets_at"};
inline constexpr OwnedAttribute<double> lossFactorAttr{"onnx.loss_factor"};   // from ScaleLoss to UnscaleGradients
inline constexpr OwnedAttribute<llvm::StringRef> paddingAttr{"onnx.padding"}; // which sizes are padded, in words
inline constexpr OwnedAttribute<llvm::StringRef> fp8NoteAttr{"onnx.fp8"};     // which products are on 8 bits, in words
inline constexpr OwnedAttribute<Mark> headTailAttr{
    "onnx.head_tail"}; // the order of a sequence's blocks (BalanceSequence)

} // namespace cleave::onnx
