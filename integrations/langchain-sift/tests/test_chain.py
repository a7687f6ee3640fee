import pytest
from langchain_core.language_models import ParrotFakeChatModel
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import RunnablePassthrough

from langchain_sift import SIFTRetriever


def joined(documents):
    return "\n\n".join(document.page_content for document in documents)


def chain_over(retriever):
    prompt = ChatPromptTemplate.from_template("{context}\n\nQuestion: {question}")
    inputs = {"context": retriever | joined, "question": RunnablePassthrough()}
    return inputs | prompt | ParrotFakeChatModel() | StrOutputParser()  # it repeats the prompt


@pytest.fixture(params=["qdrant", "faiss"])
def store(request, documents):
    return request.getfixturevalue(f"make_{request.param}")(documents)


def test_a_chain_answers_from_the_chosen_documents(store, question):
    retriever = SIFTRetriever(vectorstore=store, k=3)
    context = joined(retriever.invoke(question))
    assert chain_over(retriever).invoke(question) == f"{context}\n\nQuestion: {question}"


def test_a_chain_needs_no_argument_but_the_store(store, question):
    answer = chain_over(SIFTRetriever(vectorstore=store)).invoke(question)
    assert "chlorophyll in plants" in answer


async def test_a_chain_answers_asynchronously(store, question):
    chain = chain_over(SIFTRetriever(vectorstore=store, k=3))
    assert await chain.ainvoke(question) == chain.invoke(question)


async def test_a_chain_streams(store, question):
    chain = chain_over(SIFTRetriever(vectorstore=store, k=3))
    assert "".join([part async for part in chain.astream(question)]) == chain.invoke(question)
