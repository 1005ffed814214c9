// node widths.mjs CHROME FOLDER: pages of a folder that scroll sideways on a desktop or a phone, and headings that are
// squeezed; 1 if any. One browser loads each page once.
import { readdirSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { pathToFileURL } from 'node:url';
import puppeteer from 'puppeteer-core';

const [executablePath, folder] = process.argv.slice(2);
const pages = readdirSync(folder, { recursive: true }).filter(name => name.endsWith('.html')).sort();
const WIDTHS = [1280, 390];

// What is wrong with the page at its present width. It runs within the page.
function wrong() {
  const found = [], root = document.documentElement, beyond = root.scrollWidth - root.clientWidth;
  if (beyond > 0) {
    const ends = [...document.body.querySelectorAll('*')].map(at => [at.getBoundingClientRect().right, at]);
    const [, widest] = ends.reduce((a, b) => (b[0] > a[0] ? b : a), [0, root]);
    found.push(`scrolls ${beyond} sideways, by ${widest.localName}.${widest.className}`);
  }
  for (const at of document.querySelectorAll('article :is(h1,h2,h3)')) {
    const { width, height } = at.getBoundingClientRect(), look = getComputedStyle(at), line = parseFloat(look.lineHeight) || 1.2 * parseFloat(look.fontSize);
    if (at.checkVisibility() && width < 120 && height > 2.5 * line) found.push(`squeezes “${at.textContent.trim()}” to ${Math.round(width)}`);
  }
  // a button that copies must not lie on the text beside it
  for (const button of document.querySelectorAll('button.copy')) {
    const a = button.getBoundingClientRect(), text = button.parentElement.querySelector('pre')?.getBoundingClientRect();
    const apart = !text || a.top >= text.bottom - 1 || a.bottom <= text.top + 1 || a.left >= text.right - 1;
    if (a.width && !apart) found.push('a button to copy covers text');
  }
  return [...new Set(found)];
}

const browser = await puppeteer.launch({ executablePath, args: ['--no-sandbox', '--disable-dev-shm-usage'], timeout: 0, protocolTimeout: 0 });
const page = await browser.newPage();
page.setDefaultTimeout(0);
let faults = 0;
for (const name of pages) {
  await page.setViewport({ width: WIDTHS[0], height: 900 });
  await page.goto(pathToFileURL(resolve(join(folder, name))).href, { waitUntil: 'load' });
  for (const width of WIDTHS) {
    await page.setViewport({ width, height: 900 });
    for (const fault of await page.evaluate(wrong)) {
      faults += 1;
      console.log(`${name} at ${width}: ${fault}`);
    }
  }
}
await browser.close();
console.log(`${pages.length} pages at ${WIDTHS.join(' and ')} pixels, ${faults} faults`);
process.exit(faults ? 1 : 0);
