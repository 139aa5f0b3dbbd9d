// Registration of every pass and pipeline for cleave-opt.
#pragma once

namespace cleave {
void registerPasses();
}
