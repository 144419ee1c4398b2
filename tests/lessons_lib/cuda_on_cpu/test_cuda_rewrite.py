"""CUDA made C++: launches and shared variables are rewritten, everything else stays, and each
line keeps its number.
"""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lessons_lib import CompileError
from lessons_lib.cuda_on_cpu.code_text import CodeText, mask, outside_brackets, split_at_commas
from lessons_lib.cuda_on_cpu.rewrite import kernels_launched, rewrite
from lessons_lib.paths import KERNELS


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


@pytest.mark.parametrize(
    "launch, expected",
    [
        ("add<<<4, 128>>>(a, b, n);", launched("add", "4, 128") + "(a, b, n);"),
        (
            "add<<<dim3(2, 3), dim3{4, 5}, n * sizeof(float), stream>>>();",
            launched("add", "dim3(2, 3), dim3{4, 5}, n * sizeof(float), stream") + "();",
        ),
        ("copy<T, 64><<<grid, block>>>(a);", launched("copy<T, 64>", "grid, block") + "(a);"),
        (
            "ns::inner::copy<float><<<1, 1>>>(a);",
            launched("ns::inner::copy<float>", "1, 1") + "(a);",
        ),
        ("::copy<<<1, 1>>>(a);", launched("::copy", "1, 1") + "(a);"),
        ("copy<A<B<int>>><<<1, 1>>>(a);", launched("copy<A<B<int>>>", "1, 1") + "(a);"),
        (
            "copy<(n > 3), 1 << 4><<<1, 1>>>(a);",
            launched("copy<(n > 3), 1 << 4>", "1, 1") + "(a);",
        ),
        (
            "copy<sizeof(int) <= 4><<<1, 1>>>(a);",
            launched("copy<sizeof(int) <= 4>", "1, 1") + "(a);",
        ),
        (
            "copy<<<blocks<A<B<int>>>(), 1>>>(a);",
            launched("copy", "blocks<A<B<int>>>(), 1") + "(a);",
        ),
        ("copy<<<n<4 ? 1 : 2, n > 4>>>(a);", launched("copy", "n<4 ? 1 : 2, n > 4") + "(a);"),
        ("copy<<<n >> 2, 1 << 5>>>(a);", launched("copy", "n >> 2, 1 << 5") + "(a);"),
        ("copy<<<a < b ? 1 : 2, 32>>>(a);", launched("copy", "a < b ? 1 : 2, 32") + "(a);"),
        ("copy<<<a<b ? 1 : 2, b>a>>>(a);", launched("copy", "a<b ? 1 : 2, b>a") + "(a);"),
        ("copy<<<a<b ? 1 : 2, 32>>>(a);", launched("copy", "a<b ? 1 : 2, 32") + "(a);"),
        ("copy<T> <<<1, 1>>>(a);", launched("copy<T>", "1, 1") + "(a);"),
        *(
            (f"{kernel}<<<1, 1>>>(a);", launched(kernel, "1, 1") + "(a);")
            for kernel in (
                "k<a<c>, 1>",
                "k<ab<c>, 1>",
                "k<a<bc>>",
                "k<ab<c>>",
                "k<a<b<c>, 2>, 3>",
                "kk<(a), b<c>>",
                "k<a <b>>",
                "k<(a > b)<<1>",
            )
        ),
        *(
            (f"copy<<<{size}, 1>>>(a);", launched("copy", f"{size}, 1") + "(a);")
            for size in ("size< pair< A< int>>>()", "size<A<B<C<int>>>>()")
        ),
        ("copy <<< 1, 1 >>> (a);", launched("copy", " 1, 1 ") + " (a);"),
        ("kernels[i]<<<1, 1>>>(a);", launched("kernels[i]", "1, 1") + "(a);"),
        (
            "(wide ? copy4 : copy1)<<<1, 1>>>(a);",
            launched("(wide ? copy4 : copy1)", "1, 1") + "(a);",
        ),
        (
            "if (n) copy<<<1, 1>>>(a); else copy<<<2, 1>>>(b);",
            f"if (n) {launched('copy', '1, 1')}(a); else {launched('copy', '2, 1')}(b);",
        ),
        ("else copy<<<1, 1>>>(a);", f"else {launched('copy', '1, 1')}(a);"),
        (
            "do copy<float><<<1, 1>>>(a); while (n);",
            f"do {launched('copy<float>', '1, 1')}(a); while (n);",
        ),
        ("elsewhere<<<1, 1>>>(a);", launched("elsewhere", "1, 1") + "(a);"),
        (
            "cudaLaunchKernel((void*)copy, grid, block, arguments);",
            'cuda_on_cpu::launch_kernel("copy", copy, grid, block, arguments);',
        ),
        (
            (
                "x = cudaLaunchKernel( (const void *) "
                "&copy<float, 4>, 1, 32, (void**)all, 0, stream);"
            ),
            (
                'x = cuda_on_cpu::launch_kernel("copy<float, 4>", copy<float, 4>, 1, 32, '
                "(void**)all, 0, stream);"
            ),
        ),
        (
            "cudaLaunchKernel(reinterpret_cast<const void*>(copy), 1, 1, all);",
            'cuda_on_cpu::launch_kernel("(copy)", (copy), 1, 1, all);',
        ),
        (
            "cudaLaunchKernel(ns::copy, 1, 1, all);",
            'cuda_on_cpu::launch_kernel("ns::copy", ns::copy, 1, 1, all);',
        ),
        ("copy<'a'><<<1, 1>>>(a);", launched("copy<'a'>", "1, 1") + "(a);"),
    ],
)
def test_a_launch_becomes_a_call(launch, expected):
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


def test_quotes_do_not_hide_the_code_behind_them():
    assert "cuda_on_cpu::launch" in inside_a_kernel(
        "char c = '\"'; int n = 1'000; /* \" */ add<<<1, 1>>>(a); // it's"
    )


@pytest.mark.parametrize(
    "declaration, expected",
    [
        ("__shared__ float tile[32];", "CUDA_SHARED(float, tile, [32]);"),
        ("__shared__ float sum;", "CUDA_SHARED(float, sum, );"),
        (
            "__shared__ T a[N], b[M][K >> 1], *p[4], c;",
            (
                "CUDA_SHARED(T, a, [N]); CUDA_SHARED(T, b, [M][K >> 1]); "
                "CUDA_SHARED(T*, p, [4]); CUDA_SHARED(T, c, );"
            ),
        ),
        ("__shared__ float* rows[4];", "CUDA_SHARED(float*, rows, [4]);"),
        (
            "static __shared__ unsigned long long x[4];",
            "CUDA_SHARED(unsigned long long, x, [4]);",
        ),
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
            "__shared__ typename Traits<T>::type x[4];",
            "CUDA_SHARED(typename Traits<T>::type, x, [4]);",
        ),
        (
            "__shared__ std::pair<int, int> x[4];",
            (
                "CUDA_SHARED(typename cuda_on_cpu::argument<void(std::pair<int, "
                "int>)>::type, x, [4]);"
            ),
        ),
        ("__shared__ float x[size<T, 4>()];", "CUDA_SHARED(float, x, [(size<T, 4>())]);"),
        (
            "__shared__ float x[4]; __shared__ int y;",
            "CUDA_SHARED(float, x, [4]); CUDA_SHARED(int, y, );",
        ),
        ("extern __shared__ float smem[];", "CUDA_DYNAMIC_SHARED(float, smem);"),
        (
            "extern __shared__ __align__(16) unsigned char smem[];",
            "CUDA_DYNAMIC_SHARED_ALIGNED(16, unsigned char, smem);",
        ),
        (
            "extern __align__(16) __shared__ float4 smem[];",
            "CUDA_DYNAMIC_SHARED_ALIGNED(16, float4, smem);",
        ),
        ("__shared__ extern float smem[ ];", "CUDA_DYNAMIC_SHARED(float, smem);"),
    ],
)
def test_a_shared_variable_becomes_a_macro(declaration, expected):
    assert inside_a_kernel(declaration) == expected


def test_lines_keep_their_numbers():
    text = (
        "void launch() {\n"
        "  copy<float,\n"
        "       4>  // four at a time\n"
        "  <<<dim3(1,\n"
        "          2),\n"
        "     3>>>(a,\n"
        "   b);\n"
        "}\n"
        "__global__ void k() {\n"
        "  __shared__ float x[3],\n"
        "    y;  // more\n"
        "  here();\n}"
    )
    rewritten = rewrite(text).split("\n")
    assert len(rewritten) == len(text.split("\n"))
    assert rewritten[6].strip() == "b);" and rewritten[11].strip() == "here();"
    assert "CUDA_SHARED(float, y, );" in rewritten[9]


def test_a_launch_in_a_macro_of_several_lines_keeps_its_backslashes():
    text = "#define LAUNCH(T) \\\n  copy<T> \\\n    <<<1, \\\n  2>>>(a)\nint x;"
    lines = rewrite(text).split("\n")
    assert (
        len(lines) == 5
        and all(line.endswith("\\") for line in lines[:3])
        and lines[4] == "int x;"
    )


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
    assert words in str(caught.value)
    assert (caught.value.source, caught.value.line) == ("your code", 2)
    assert str(caught.value).startswith("your code, line 2: ") and str(caught.value).endswith(
        f"\n    {line}"
    )


@pytest.mark.parametrize(
    "before", ["", "namespace a { namespace {", 'extern "C" {', "void f() {}"]
)
def test_shared_variables_stand_in_functions(before):
    with pytest.raises(CompileError, match="inside the kernel"):
        rewrite(f"{before}\nextern __shared__ float smem[];")


def test_after_a_macro_namespace_scope_goes_on():
    for macro in ("#define TILE 32", "#define TILE \\\n 32", "int a; //\\\n#"):
        with pytest.raises(CompileError, match="inside the kernel"):
            rewrite(f"{macro}\n __shared__ float tile[TILE];")


def test_a_text_may_begin_with_a_launch_or_an_empty_line():
    assert (
        rewrite("(wide ? copy4 : copy1)<<<1, 1>>>(a);")
        == launched("(wide ? copy4 : copy1)", "1, 1") + "(a);"
    )
    assert rewrite("copy<<<1, 1>>>(a);") == launched("copy", "1, 1") + "(a);"
    for text, line in (
        ("\ncopy<<<>>>(a);", 2),
        ("copy<<<>>>(a);", 1),
        (")<<<1, 1>>>(", 1),
        ("<<<1, 1>>>(a);", 1),
    ):
        with pytest.raises(CompileError) as caught:
            rewrite(text)
        assert caught.value.line == line


@pytest.mark.parametrize(
    "text, parts",
    [
        ("a, b", ["a", " b"]),
        ("", [""]),
        (",", ["", ""]),
        ("f(a, b), c[1, 2], {3, 4}", ["f(a, b)", " c[1, 2]", " {3, 4}"]),
        ("pair<int, int> a, b", ["pair<int, int> a", " b"]),
        ("f<(a > b), c>, d", ["f<(a > b), c>", " d"]),
        ("f<p->n, 2>, b", ["f<p->n, 2>", " b"]),
        ("(a < b, c), d", ["(a < b, c)", " d"]),
        ("f<(a < b), c>, d", ["f<(a < b), c>", " d"]),
    ],
)
def test_commas_in_brackets_part_nothing(text, parts):
    assert split_at_commas(text) == parts


def test_what_is_outside_brackets_keeps_its_place():
    assert outside_brackets("a<b, c> d[e] (f(g))") == "a<    > d[ ] (    )"


def test_a_place_outside_brackets_is_found_or_there_is_none():
    code = CodeText("a(b;c) [;] d; e )", "your code")
    assert code.find_outside_brackets(0, lambda at: code.bare[at] == ";", stop="") == 12
    # the semicolon is first
    assert code.find_outside_brackets(0, lambda at: code.bare[at] == "e") is None
    assert code.find_outside_brackets(0, lambda at: code.bare[at] == "e", stop="") == 14
    assert code.find_outside_brackets(0, lambda at: code.bare[at] == ")", stop="") == 16
    assert code.find_outside_brackets(0, lambda at: code.bare[at] == "z", stop="") is None


def test_names_of_the_stand_in_are_not_for_answers():
    with pytest.raises(CompileError, match="cuda_on_cpu_own is a name of the CPU stand-in"):
        rewrite("int cuda_on_cpu_own;")


def test_the_kernels_that_are_launched_have_names():
    assert kernels_launched("a<<<1, 1>>>(); b<<<1, 1>>>(); c<<<1, 1>>>(); d<<<1, 1>>>();") == [
        "a",
        "b",
        "c",
        "d",
    ]
    assert kernels_launched(
        "// no<<<1, 1>>>();\nf<int,\n  3><<<1, 1>>>(); g<<<2, 2>>>(1);"
    ) == ["f<int, 3>", "g"]
    assert kernels_launched(
        "cudaLaunchKernel((void*)\n f<int,\n 3>, 1, 1, all); g<<<2, 2>>>(1);"
    ) == ["f<int, 3>", "g"]


@pytest.mark.parametrize("path", sorted(KERNELS.glob("*.cu*")), ids=lambda path: path.name)
def test_our_own_kernels_keep_their_lines(path):
    text = path.read_text()
    rewritten = rewrite(text, path.name)
    code = mask(rewritten)
    assert (
        rewritten.count("\n") == text.count("\n")
        and "<<<" not in code
        and "__shared__" not in code
    )
    for before, after in zip(text.split("\n"), rewritten.split("\n"), strict=True):
        assert (
            before == after
            or re.search("<<<|__shared__", before)
            or "cuda_on_cpu::" in after
            or "CUDA_" in after
        )


PIECES = [
    "a",
    "<<",
    "<<<",
    ">>>",
    ">>",
    "<",
    ">",
    "(",
    ")",
    "{",
    "}",
    "[",
    "]",
    ";",
    ",",
    "\n",
    " ",
    '"',
    "'",
    "\\",
    "//",
    "/*",
    "*/",
    "__shared__ ",
    "extern ",
    "float ",
    "1",
    "=",
    "#define ",
    'R"(',
    ')"',
    "alignas(4) ",
]


@given(st.lists(st.sampled_from(PIECES), max_size=40).map("".join))
def test_any_text_keeps_its_lines_or_is_an_error(text):
    assert len(mask(text)) == len(text) and mask(text).count("\n") == text.count("\n")
    try:
        rewritten = rewrite(text)
    except CompileError as error:
        assert 1 <= error.line <= text.count("\n") + 1
    else:
        assert rewritten.count("\n") == text.count("\n")


@given(
    st.lists(
        st.sampled_from(["a", "b<int>", "x[1]", "(y + 2)", "1 << 3", "f(a, b)"]),
        min_size=1,
        max_size=4,
    ),
    st.sampled_from(["k", "ns::k", "k<T>", "k<A<B<3>>, 4>"]),
    st.integers(0, 3),
)
def test_what_a_launch_says_arrives_as_it_was(values, kernel, ends):
    configuration = (", " + "\n" * ends).join(values)
    rewritten = rewrite(f"void f() {{ {kernel}<<<{configuration}>>>(p); }}")
    assert (
        f'configure("{kernel}", {configuration}),' in rewritten
        and f"{{ {kernel}(arguments...); }})(p);" in rewritten
    )
