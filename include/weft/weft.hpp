// All of Weft.
#pragma once

#include "weft/compile.hpp"
#include "weft/custom_op.hpp"
#include "weft/device.hpp"
#include "weft/dtype.hpp"
#include "weft/elementwise.hpp"
#include "weft/error.hpp"
#include "weft/grad.hpp"
#include "weft/inference.hpp"
#include "weft/llm.hpp"
#include "weft/log.hpp"
#include "weft/nn.hpp"
#include "weft/ops.hpp"
#include "weft/optim.hpp"
#include "weft/shape.hpp"
#include "weft/tensor.hpp"
#include "weft/train.hpp"
