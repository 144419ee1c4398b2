#include "../numbers.h"
