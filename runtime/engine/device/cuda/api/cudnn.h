// The part of cuDNN 9 (libcudnn.so.9) that the runtime calls: the backend interface, whose descriptors are sets of
// attributes. check.cpp compares it with NVIDIA's headers where they are installed.
#pragma once
#include "runtime/engine/device/cuda/api/driver.h"

namespace cleave::runtime::cuda {

using DnnHandle = struct DnnContext *;
using DnnDescriptor = void *;

enum : int {
  // cudnnBackendDescriptorType_t
  dnnConvolution = 1,
  dnnEngineConfiguration = 3,
  dnnEngineHeuristic = 4,
  dnnExecutionPlan = 5,
  dnnConvolutionForward = 10,
  dnnConvolutionBackwardFilter = 11,
  dnnConvolutionBackwardData = 12,
  dnnEngine = 2,
  dnnPointwise = 0,
  dnnPointwiseOperation = 13,
  dnnOperationGraph = 15,
  dnnMatmul = 18,
  dnnMatmulOperation = 19,
  dnnReduction = 21,
  dnnReductionOperation = 22,
  dnnReshapeOperation = 31,
  dnnVariantPack = 16,
  dnnTensor = 17,
  // cudnnBackendAttributeType_t
  dnnTypeHandle = 0,
  dnnTypeDataType = 1,
  dnnTypeBoolean = 2,
  dnnTypeInt64 = 3,
  dnnTypeFloat = 4,
  dnnTypeDouble = 5,
  dnnTypeVoidPointer = 6,
  dnnTypeConvolutionMode = 7,
  dnnTypeHeuristicMode = 8,
  dnnTypeNumericalNote = 11,
  dnnTypePointwiseMode = 14,
  dnnTypeDescriptor = 15,
  dnnTypeReductionOperator = 18,
  // cudnnBackendAttributeName_t
  dnnPointwiseMode = 0,
  dnnPointwisePrecision = 1,
  dnnPointwiseAxis = 9,
  dnnPointwiseOf = 750, // the operation's description, then
  dnnPointwiseX = 751,
  dnnPointwiseB = 752,
  dnnPointwiseY = 753,
  dnnPointwiseDx = 756,
  dnnPointwiseDy = 757,
  dnnPointwiseT = 758,
  dnnMatmulComputeType = 1500,
  dnnMatmulA = 1520,
  dnnMatmulB = 1521,
  dnnMatmulC = 1522,
  dnnMatmulOf = 1523,
  dnnReductionOperator = 1600,
  dnnReductionComputeType = 1601,
  dnnReductionX = 1610,
  dnnReductionY = 1611,
  dnnReductionOf = 1612,
  dnnReshapeX = 2200,
  dnnReshapeY = 2201,
  dnnConvolutionComputeType = 100,
  dnnConvolutionMode = 101,
  dnnConvolutionDilations = 102,
  dnnConvolutionStrides = 103,
  dnnConvolutionPostPaddings = 104,
  dnnConvolutionPrePaddings = 105,
  dnnConvolutionSpatialDims = 106,
  dnnHeuristicMode = 200,
  dnnHeuristicGraph = 201,
  dnnHeuristicResults = 202,
  dnnConfigurationEngine = 300,
  dnnEngineNotes = 1303,
  dnnPlanHandle = 400,
  dnnPlanConfiguration = 401,
  dnnPlanWorkspace = 402,
  dnnForwardAlpha = 700,        // then BETA, CONV_DESC, W, X, Y
  dnnBackwardDataAlpha = 706,   // then BETA, CONV_DESC, W, DX, DY
  dnnBackwardFilterAlpha = 712, // then BETA, CONV_DESC, DW, X, DY
  dnnGraphHandle = 800,
  dnnGraphOperations = 801,
  dnnTensorAlignment = 900,
  dnnTensorDataType = 901,
  dnnTensorDimensions = 902,
  dnnTensorStrides = 903,
  dnnTensorUniqueId = 906,
  dnnTensorIsVirtual = 907,
  dnnTensorIsByValue = 908,
  dnnPackUniqueIds = 1000,
  dnnPackPointers = 1001,
  dnnPackWorkspace = 1003,
  // cudnnHeurMode_t, cudnnConvolutionMode_t, cudnnDataType_t
  dnnModeFallback = 2,
  dnnModeA = 3,
  dnnCrossCorrelation = 1,
  dnnFloat = 0,
  dnnDouble = 1,
  dnnHalf = 2,
  dnnInt32 = 4,
  dnnBoolean = 11,
  dnnBfloat16 = 9,
  // cudnnPointwiseMode_t
  dnnAdd = 0,
  dnnMul = 1,
  dnnDiv = 6,
  dnnSub = 9,
  dnnExp = 13,
  dnnLog = 15,
  dnnIdentity = 21,
  dnnTanh = 101,
  dnnTanhBackward = 201,
  dnnGreater = 302,
  dnnGreaterOrEqual = 303,
  dnnGenIndex = 501,
  dnnSelect = 601,
  // cudnnReduceTensorOp_t
  dnnReduceAdd = 0,
  dnnReduceMax = 3,
  // cudnnBackendNumericalNote_t
  dnnNoteTensorCore = 0,
  dnnNoteNarrowInputs = 1,
  dnnNoteNondeterministic = 4,
  dnnNoteCount = 10,
};

// FUNCTION(member, symbol, parameters); all return cudnnStatus_t.
#define CLEAVE_CUDNN_FUNCTIONS(FUNCTION)                                                                               \
  FUNCTION(create, cudnnCreate, (DnnHandle * handle))                                                                  \
  FUNCTION(destroy, cudnnDestroy, (DnnHandle handle))                                                                  \
  FUNCTION(setStream, cudnnSetStream, (DnnHandle handle, Stream stream))                                               \
  FUNCTION(createDescriptor, cudnnBackendCreateDescriptor, (int type, DnnDescriptor *descriptor))                      \
  FUNCTION(destroyDescriptor, cudnnBackendDestroyDescriptor, (DnnDescriptor descriptor))                               \
  FUNCTION(set, cudnnBackendSetAttribute,                                                                              \
           (DnnDescriptor descriptor, int attribute, int type, int64_t count, const void *elements))                   \
  FUNCTION(get, cudnnBackendGetAttribute,                                                                              \
           (DnnDescriptor descriptor, int attribute, int type, int64_t requested, int64_t *count, void *elements))     \
  FUNCTION(finalize, cudnnBackendFinalize, (DnnDescriptor descriptor))                                                 \
  FUNCTION(execute, cudnnBackendExecute, (DnnHandle handle, DnnDescriptor plan, DnnDescriptor pack))

struct Cudnn {
#define CLEAVE_MEMBER(member, symbol, parameters) int(*member) parameters = nullptr;
  CLEAVE_CUDNN_FUNCTIONS(CLEAVE_MEMBER)
#undef CLEAVE_MEMBER
  const char *(*errorString)(int status) = nullptr; // cudnnGetErrorString
  size_t (*version)() = nullptr;                    // cudnnGetVersion: 91900 is 9.19.0
};

} // namespace cleave::runtime::cuda
