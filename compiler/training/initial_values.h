// How a parameter begins that no file has: with one number, or drawn by the counter-based generator as a function of
// the recipe's seed, the parameter's name and the element.
//
//     fill(param, 0)               {fill = 0.0}
//     drawUniform(param, -b, b)    {init = {kind = "uniform", low = -b, high = b, stream = (of its name), ...}}
#pragma once
#include "dialects/onnx/Onnx.h"

namespace cleave::training {

void fill(onnx::ParamOp param, double value);
void drawNormal(onnx::ParamOp param, double mean, double deviation);
void drawUniform(onnx::ParamOp param, double low, double high);

} // namespace cleave::training
