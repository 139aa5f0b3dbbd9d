// Names of the persistent scalars of a dynamic loss scale (precision: fp16): the scale, the finite steps since it last
// changed; and, there and with skip_outliers, how many steps were skipped so far.
#pragma once

namespace cleave::runtime {

inline constexpr const char *scaleName = "loss_scale", *goodStepsName = "loss_scale.good_steps",
                            *skippedName = "loss_scale.skipped";

} // namespace cleave::runtime
