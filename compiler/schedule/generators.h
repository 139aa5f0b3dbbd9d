// The makers of schedule tables, one for each family. Each fills the rows of a table whose ranks, stages, microbatches
// and rankOfStage are set; kinds.cpp says which kind is which and sets those. Two follow the times of a typical stage.
// Worked example: fillOneForwardOneBackward on ranks = stages = 2, microbatches = 3 gives the rows shown in schedule.h.
#pragma once
#include "compiler/schedule/schedule.h"

namespace cleave::planner {

// All forwards, then all backwards, in the order of the microbatches (GPipe, Huang et al. 2019). With several stages a
// rank, a stage's microbatches one after the other (breadth-first pipeline, Lamy-Poirier 2022).
void fillBreadthFirst(PipelineSchedule &schedule, const StageTimes &);

// P - 1 - r forwards, then one forward and one backward in turn (PipeDream-Flush, Narayanan et al. 2021).
void fillOneForwardOneBackward(PipelineSchedule &schedule, const StageTimes &);

// The interleaved 1F1B of Megatron-LM (Narayanan et al. 2021, section 2.2): groups of P microbatches pass through a
// rank's V chunks in turn; 2 (P - 1 - r) + (V - 1) P forwards go ahead. Microbatches: a multiple of P.
void fillInterleaved(PipelineSchedule &schedule, const StageTimes &);

// ZB-H1 and ZB-H2, handcrafted (Qi et al. 2023, figure 3): P - r forwards (2 (P - r) - 1) go before the first backward,
// and the weight gradient of a microbatch follows r (2 r) input gradients later, so that each rank holds equally many
// microbatches: P with ZB-H1, of which 1F1B's memory is enough for the first rank, 2 P - 1 with ZB-H2.
void fillZeroBubbleH1(PipelineSchedule &schedule, const StageTimes &);
void fillZeroBubbleH2(PipelineSchedule &schedule, const StageTimes &);

// The automatic scheduling of the zero-bubble paper (section 3.1): greedy from the times, with at most P (2 P)
// microbatches' activations on a rank, of which kWeightPartOfActivations stays from the input gradient to the weight
// gradient.
void fillZeroBubble1P(PipelineSchedule &schedule, const StageTimes &times);
void fillZeroBubble2P(PipelineSchedule &schedule, const StageTimes &times);

// ZB-V (Qi et al. 2024): stage r and stage 2 P - 1 - r on rank r. Microbatches: at least 2 P.
void fillZeroBubbleV(PipelineSchedule &schedule, const StageTimes &);

// DualPipeV (DeepSeek's DualPipe repository, "cut in half"), on the same placement. Microbatches: at least 2 P. A
// forward and a backward that DualPipeV overlaps follow each other here, forward first.
void fillDualPipeV(PipelineSchedule &schedule, const StageTimes &);

} // namespace cleave::planner
