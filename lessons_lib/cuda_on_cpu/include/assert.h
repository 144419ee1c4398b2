// A failed assertion in a kernel is reported. With the C library it would end the process.
#include "../intrinsics.h"
