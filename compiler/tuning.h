// The planner's beliefs about the compiler, and the compiler's own rules: thresholds that both go by, each once.
#pragma once
#include <cstdint>

namespace cleave::tuning {

// Bytes of a gradient bucket; PyTorch DDP's default (bucket_cap_mb=25).
inline constexpr int64_t bucketBytes = 25 << 20;
// Parameters are gathered in blocks of so many bytes, or of one that is larger; two blocks are on the device.
inline constexpr int64_t gatherBlockBytes = 1 << 20;
// A tensor that is no larger (statistics of rows, scalars) is kept for the backward pass rather than made again, unless
// it is the wider copy of a value.
inline constexpr int64_t smallBytes = 65536;
// Logits of a head run in chunks (ChunkProducts) of no more bytes on a device: its products stay large enough to be as
// fast, and 16 samples of GPT-2 need 0.2 GiB of logits where they had 3.
inline constexpr int64_t chunkBytes = 256 << 20;
// Kernels of no more elements run on one of a CPU's threads.
inline constexpr int64_t soloElements = 4096;
// An activation stays on the device if fewer than 1/offloadSpanDivisor of both passes' commands lie between its last
// forward and its first backward use.
inline constexpr int64_t offloadSpanDivisor = 8;
// A parameter's optimizer state that has fewer bytes stays there, too: it would be all latency.
inline constexpr int64_t leastOnHost = 4096;
// The rest leaves and comes in so many buckets, or with all that one kernel reads; two are on the device, an eighth of
// it.
inline constexpr int64_t hostBuckets = 16;

} // namespace cleave::tuning
