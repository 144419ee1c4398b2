"""A recorded call as a C++ program, so that another processor makes it too."""

from lessons_lib.cuda_on_cpu.rewrite import rewrite
from recorded_calls import Call, Memory

PROGRAM = """\
#include <cstdio>
#include <cstdlib>
#include <cstring>

@STRUCTS@
extern "C" int @FUNCTION@(@TYPES@);
extern "C" void cuda_on_cpu_options(int seed, int os_threads, long long step_limit);

// Reads the tensors from the first file, and writes them to the second one.
int main(int, char** files) {
  cuda_on_cpu_options(0, 2, 100'000'000);
  char* memory = static_cast<char*>(std::aligned_alloc(64, @SIZE@));
  FILE* tensors = std::fopen(files[1], "rb");
  if (std::fread(memory, 1, @SIZE@, tensors) != @SIZE@) return 100;
  @VALUES@
  if (int error = @FUNCTION@(@ARGUMENTS@)) return error;
  tensors = std::fopen(files[2], "wb");
  return std::fwrite(memory, 1, @SIZE@, tensors) != @SIZE@ || std::fclose(tensors);
}
"""
ALIGNED = 64  # bytes, as PyTorch's tensors are


def places(call: Call) -> tuple[dict[int, int], int]:
    """Where each tensor is in the program's memory, by its address here; and its size."""
    found, end = {}, 0
    for address, memory in call.before.items():
        found[address] = end
        end += -(-len(memory.content) // ALIGNED) * ALIGNED
    return found, end or ALIGNED


def kernel_of(call: Call) -> str:
    """The kernel's text, in C++."""
    return "\n".join(rewrite(text, name) for name, text in call.texts.items())


def program_of(call: Call) -> str:
    """A program that makes the call."""
    where, size = places(call)
    structs, types, values, arguments = [], [], [], []

    def pointer(address) -> str:
        return f"memory + {where[address]}" if address in where else "nullptr"

    for number, argument in enumerate(call.arguments):
        name = f"a{number}"
        if isinstance(argument, tuple):
            # one of more than 16 bytes goes by its address, whatever its fields are
            content, pointers = argument
            structs.append(
                f"struct alignas(8) S{number} {{ unsigned char b[{len(content)}]; }};"
            )
            values.append(f"S{number} {name} = {{{{{', '.join(map(str, content))}}}}};")
            for offset, address in pointers.items():
                values.append(f"void* {name}_{offset} = {pointer(address)};")
                values.append(f"std::memcpy({name}.b + {offset}, &{name}_{offset}, 8);")
        is_number = isinstance(argument, (int, float)) and argument not in where
        types.append(f"S{number}" if isinstance(argument, tuple) else "void*")
        if is_number:
            types[-1] = "float" if isinstance(argument, float) else "int"
        arguments.append(
            name
            if isinstance(argument, tuple)
            else repr(argument) + "f" * isinstance(argument, float)
            if is_number
            else pointer(argument)
        )
    text = PROGRAM
    for mark, filled in (
        ("STRUCTS", "\n".join(structs)),
        ("FUNCTION", call.function),
        ("TYPES", ", ".join(types)),
        ("SIZE", str(size)),
        ("VALUES", "\n  ".join(values)),
        ("ARGUMENTS", ", ".join(arguments)),
    ):
        text = text.replace(f"@{mark}@", filled)
    return text


def tensors_of(call: Call) -> bytes:
    """What the program reads."""
    where, size = places(call)
    content = bytearray(size)
    for address, memory in call.before.items():
        content[where[address] : where[address] + len(memory.content)] = memory.content
    return bytes(content)


def written(call: Call, content: bytes) -> dict[int, Memory]:
    """The tensors after the call, from what the program has written."""
    return {
        address: Memory(content[place : place + len(call.before[address].content)], kept.dtype)
        for (address, place), kept in zip(
            places(call)[0].items(), call.before.values(), strict=True
        )
    }
