// node formulas.mjs katex|mathjax: formulas as JSON lines in, {"tex": …, "display": …}; those that fail as JSON lines out.
import { createInterface } from 'node:readline';

const readers = {
  async katex() {
    const { default: katex } = await import('katex');
    return ({ tex, display }) => katex.renderToString(tex, { displayMode: display, throwOnError: true, strict: 'error' });
  },
  async mathjax() {
    const { default: MathJax } = await import('mathjax');
    const strict = {
      packages: { '[-]': ['noerrors', 'noundefined'] },
      formatError(_, error) { throw error; },
    };
    await MathJax.init({ loader: { load: ['input/tex'] }, tex: strict, startup: { typeset: false } });
    return ({ tex, display }) => MathJax.tex2mmlPromise(tex, { display });
  },
};

const show = await readers[process.argv[2]]();
for await (const line of createInterface({ input: process.stdin })) {
  const formula = JSON.parse(line);
  try {
    await show(formula);
  } catch (error) {
    console.log(JSON.stringify({ ...formula, error: String(error.message) }));
  }
}
