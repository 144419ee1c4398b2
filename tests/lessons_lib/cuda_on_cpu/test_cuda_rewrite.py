"""CUDA made C++: launches and shared variables are rewritten, everything else stays, and each
line keeps its number.
"""

import re

import pytest

from lessons_lib import CompileError
from lessons_lib.cuda_on_cpu.code_text import mask
from lessons_lib.cuda_on_cpu.rewrite import rewrite
from lessons_lib.paths import KERNELS, ROOT


def inside_a_kernel(line: str) -> str:
    """`line`, rewritten as the second line of a kernel."""
    text = rewrite(f"__global__ void k() {{\n{line}\n}}")
    return text[text.index("\n") + 1 : text.rindex("\n")]


def launched(name: str, configuration: str, called: str = "") -> str:
    return (
        f'cuda_on_cpu::launch(cuda_on_cpu::configure("{name}", {configuration}), '
        f"CUDA_KERNEL_ADDRESS({called or name}), [=](auto... arguments) {{ "
        f"{called or name}(arguments...); }})"
    )


# The kernel, and between <<< and >>>.
LAUNCHES = [
    ("add", "4, 128"),
    ("add", " 1, 1 "),
    ("add", "dim3(2, 3), dim3{4, 5}, n * sizeof(float), stream"),
    ("copy<T, 64>", "grid, block"),
    ("ns::inner::copy<float>", "1, 1"),
    ("::copy", "1, 1"),
    ("copy<A<B<int>>>", "1, 1"),
    ("copy<(n > 3), 1 << 4>", "1, 1"),
    ("copy<sizeof(int) <= 4>", "1, 1"),
    ("copy<'a'>", "1, 1"),
    ("k<a<c>, 1>", "1, 1"),
    ("k<a<b<c>, 2>, 3>", "1, 1"),
    ("k<(a > b)<<1>", "1, 1"),
    ("kernels[i]", "1, 1"),
    ("(wide ? copy4 : copy1)", "1, 1"),
    ("copy", "blocks<A<B<int>>>(), 1"),
    ("copy", "size< pair< A< int>>>(), 1"),
    ("copy", "size<A<B<C<int>>>>(), 1"),
    ("copy", "n<4 ? 1 : 2, n > 4"),
    ("copy", "n >> 2, 1 << 5"),
    ("copy", "a < b ? 1 : 2, 32"),
    ("copy", "a<b ? 1 : 2, b>a"),
    ("copy", "a<b ? 1 : 2, 32"),
]


@pytest.mark.parametrize("kernel, configuration", LAUNCHES)
def test_a_launch_becomes_a_call(kernel, configuration):
    launch = f"{kernel}<<<{configuration}>>>(a, b);"
    expected = launched(kernel, configuration) + "(a, b);"
    assert inside_a_kernel(launch) == expected
    assert rewrite(launch) == expected  # the text may begin with it
    assert inside_a_kernel(f"else {launch}") == f"else {expected}"


@pytest.mark.parametrize(
    "launch, expected",
    [
        ("copy<T> <<<1, 1>>> (a);", f"{launched('copy<T>', '1, 1')} (a);"),
        (
            "if (n) copy<<<1, 1>>>(a); else copy<<<2, 1>>>(b);",
            f"if (n) {launched('copy', '1, 1')}(a); else {launched('copy', '2, 1')}(b);",
        ),
        (
            "do copy<float><<<1, 1>>>(a); while (n);",
            f"do {launched('copy<float>', '1, 1')}(a); while (n);",
        ),
        ("elsewhere<<<1, 1>>>(a);", launched("elsewhere", "1, 1") + "(a);"),
        (
            "x = cudaLaunchKernel( (const void *) &copy<float, 4>, 1, 32, (void**)all);",
            'x = cuda_on_cpu::launch_kernel("copy<float, 4>", copy<float, 4>, 1, 32, '
            "(void**)all);",
        ),
        (
            "cudaLaunchKernel(reinterpret_cast<const void*>(copy), 1, 1, all);",
            'cuda_on_cpu::launch_kernel("(copy)", (copy), 1, 1, all);',
        ),
        (
            "cudaLaunchKernel(ns::copy, 1, 1, all);",
            'cuda_on_cpu::launch_kernel("ns::copy", ns::copy, 1, 1, all);',
        ),
        (
            "char c = '\"'; int n = 1'000; /* \" */ add<<<1, 1>>>(a); // it's",
            f"char c = '\"'; int n = 1'000; /* \" */ {launched('add', '1, 1')}(a); // it's",
        ),
    ],
)
def test_so_does_one_among_other_code_and_one_by_function(launch, expected):
    assert inside_a_kernel(launch) == expected


@pytest.mark.parametrize(
    "line",
    [
        "int a = b << c; b >>= 2; std::cout << a << b;",
        "std::vector<std::array<std::pair<int, int>, 2>> v; A<B<C<int>>> w;",
        "// add<<<1, 1>>>(a); __shared__ float x[3];",
        "/* add<<<1, 1>>>(a);\n __shared__ float x[3]; */ int a;",
        'const char* text = "add<<<1, 1>>>(a) __shared__ \\" <<<";',
        'const char* text = R"(add<<<1, 1>>> " <<<)";',
        "char quote = '\"'; int a = 1'000'000; char more = '\\'';",
        "#pragma unroll <<<",
    ],
)
def test_other_code_stays_as_it_is(line):
    assert inside_a_kernel(line) == line


@pytest.mark.parametrize(
    "declaration, expected",
    [
        ("__shared__ float tile[32];", "CUDA_SHARED(float, tile, [32]);"),
        (
            "__shared__ T a[N], b[M][K >> 1], *p[4], c;",
            "CUDA_SHARED(T, a, [N]); CUDA_SHARED(T, b, [M][K >> 1]); "
            "CUDA_SHARED(T*, p, [4]); CUDA_SHARED(T, c, );",
        ),
        ("static __shared__ long long x[4];", "CUDA_SHARED(long long, x, [4]);"),
        ("volatile __shared__ float x[4];", "CUDA_SHARED(volatile float, x, [4]);"),
        ("__shared__ volatile float x[4];", "CUDA_SHARED(volatile float, x, [4]);"),
        ("__shared__ __align__(16) T x[4];", "CUDA_SHARED_ALIGNED(16, T, x, [4]);"),
        ("__align__(16) __shared__ T x[4];", "CUDA_SHARED_ALIGNED(16, T, x, [4]);"),
        (
            "alignas(16) __shared__ T x[4], y;",
            "CUDA_SHARED_ALIGNED(16, T, x, [4]); CUDA_SHARED_ALIGNED(16, T, y, );",
        ),
        (
            "__shared__ alignas(sizeof(T) * 2) T x[4];",
            "CUDA_SHARED_ALIGNED(sizeof(T) * 2, T, x, [4]);",
        ),
        (
            "__shared__ std::pair<int, int> x[4];",
            "CUDA_SHARED(typename cuda_on_cpu::argument<void(std::pair<int, int>)>::type, "
            "x, [4]);",
        ),
        ("__shared__ float x[size<T, 4>()];", "CUDA_SHARED(float, x, [(size<T, 4>())]);"),
        (
            "__shared__ float x[4]; __shared__ int y;",
            "CUDA_SHARED(float, x, [4]); CUDA_SHARED(int, y, );",
        ),
        (
            "extern __shared__ __align__(16) unsigned char smem[];",
            "CUDA_DYNAMIC_SHARED_ALIGNED(16, unsigned char, smem);",
        ),
        ("__shared__ extern float smem[ ];", "CUDA_DYNAMIC_SHARED(float, smem);"),
    ],
)
def test_a_shared_variable_becomes_a_macro(declaration, expected):
    assert inside_a_kernel(declaration) == expected


def test_a_launch_in_a_macro_of_several_lines_keeps_its_backslashes():
    text = "#define LAUNCH(T) \\\n  copy<T> \\\n    <<<1, \\\n  2>>>(a)\nint x;"
    *macro, last, other = rewrite(text).split("\n")
    assert len(macro) == 3 and all(line.endswith("\\") for line in macro)
    assert other == "int x;"


def test_a_declaration_in_a_macro_is_no_namespace_scope():
    assert "CUDA_SHARED(float, tile, [32]);" in rewrite(
        "#define TILE \\\n __shared__ float tile[32];"
    )


@pytest.mark.parametrize(
    "line, words",
    [
        ("copy<<<1, 2;", "this <<< has no >>> that closes it"),
        ("copy<<<1, (2>>>(a);", "this <<< has no >>> that closes it"),
        ("copy<<<>>>(a);", "how many blocks and how many threads"),
        ("copy<<<1, 2>>>;", "after >>> come the kernel's arguments in parentheses"),
        ("<<<1, 2>>>(a);", "before <<< comes the name of the kernel"),
        ("return <<<1, 2>>>(a);", "before <<< comes the name of the kernel"),
        ("if (a) b(); else <<<1, 2>>>(a);", "before <<< comes the name of the kernel"),
        ("cudaLaunchKernel((void*)copy, 1, 1;", "cudaLaunchKernel has no closing parenthesis"),
        ("int> <<<1, 2>>>(a);", "the template arguments before <<< cannot be read"),
        ("__shared__ float x = 0;", "has no initial value"),
        ("__shared__ float x[2] = {1, 2};", "has no initial value"),
        ("__shared__ struct { int a; } x;", "give the type a name"),
        ("__shared__ float x[];", "needs its length"),
        ("extern __shared__ float x[3];", "has no length here"),
        ("extern __shared__ float x;", "has no length here"),
        ("__shared__ x;", "cannot be read"),
        ("__shared__ float (*x)[3];", "cannot be read"),
        ("__shared__ float& x;", "cannot be read"),
        ("__shared__ __align__(8) alignas(16) float x;", "more than one alignment"),
        ("__shared__ float x", "does not end with a semicolon"),
        (")<<<1, 2>>>(a);", "this ) has no ( that opens it"),
        ("a]<<<1, 2>>>(", "this ] has no [ that opens it"),
    ],
)
def test_what_cannot_be_read_is_an_error_at_its_line(line, words):
    with pytest.raises(CompileError) as caught:
        inside_a_kernel(line)
    assert (caught.value.source, caught.value.line) == ("your code", 2)
    said = str(caught.value)
    assert words in said
    assert said.startswith("your code, line 2: ") and said.endswith(f"\n    {line}")


@pytest.mark.parametrize(
    "before",
    [
        *("", "namespace a { namespace {", 'extern "C" {', "void f() {}"),
        *("#define TILE 32", "#define TILE \\\n 32", "int a; //\\\n#"),  # which it outlasts
    ],
)
def test_shared_variables_stand_in_functions(before):
    with pytest.raises(CompileError, match="inside the kernel"):
        rewrite(f"{before}\nextern __shared__ float smem[];")


@pytest.mark.parametrize(
    "text, line", [("\ncopy<<<>>>(a);", 2), (")<<<1, 1>>>(", 1), ("<<<1, 1>>>(a);", 1)]
)
def test_an_error_at_the_beginning_has_its_line(text, line):
    with pytest.raises(CompileError) as caught:
        rewrite(text)
    assert caught.value.line == line


OVER_LINES = ROOT / "tests/banks/cuda_bank/right_template.cu"  # has a launch over two


@pytest.mark.parametrize(
    "path", [*sorted(KERNELS.glob("*.cu*")), OVER_LINES], ids=lambda path: path.name
)
def test_our_own_kernels_keep_their_lines(path):
    text = path.read_text()
    rewritten = rewrite(text, path.name)
    assert not re.search("<<<|__shared__", mask(rewritten))
    for before, after in zip(text.split("\n"), rewritten.split("\n"), strict=True):
        changed = re.search("<<<|__shared__", before) or re.search(
            "cuda_on_cpu::|CUDA_", after
        )
        assert before == after or changed
