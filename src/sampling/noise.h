#pragma once

// The noise is shared with the kernels, so it lives on the ground floor.
#include "base/noise.h"
