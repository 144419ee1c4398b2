#include "../intrinsics.h"
