#pragma once

// exp and log are shared with the kernels, so they live on the ground floor.
#include "base/fast_math.h"
