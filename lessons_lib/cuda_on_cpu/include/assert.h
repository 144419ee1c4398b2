// A failed assertion in a kernel is reported; the C library would end the process.
#include "../intrinsics.h"
